#include "worker/train/answerer.h"

#include <utility>

#include "proto/snug/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/new_file.h"
#include "worker/program/files/added_tokens.h"
#include "worker/program/lower.h"
#include "worker/train/failure.h"
#include "worker/train/generator.h"
#include "worker/train/sampling.h"
#include "worker/train/static_bytes.h"
#include "worker/train/text_pieces.h"

namespace snug::train {
namespace {

// One prompt's answer on its way to who listens. The first failure to send ends the answer.
class Telling {
 public:
  Telling(link::AnswerLink& link, const Prompts& prompts, int prompt, const std::atomic<bool>& stop)
      : link_(link), prompts_(prompts), prompt_(prompt), stop_(stop) {}

  // Whether the answer ends with this token.
  bool Take(int32_t token) {
    stopped_ = prompts_.Stops(token);
    // A token that ends an answer is none of its text, whatever it spells.
    const std::string bytes = stopped_ ? "" : prompts_.TextOf({&token, 1}, !begun_);
    begun_ = begun_ || (!stopped_ && !prompts_.TextOf({&token, 1}, /*begins=*/false).empty());
    const std::string text = pieces_.Add(bytes);
    status_ = link_.Piece(prompt_, text, {&token, 1});
    if (status_.ok()) status_ = link_.CheckListener();
    if (stop_) status_ = absl::CancelledError("stopped on command");
    return stopped_ || !status_.ok();
  }

  absl::Status End() {
    RETURN_IF_ERROR(status_);
    const std::string rest = pieces_.End();
    if (!rest.empty()) RETURN_IF_ERROR(link_.Piece(prompt_, rest, {}));
    return link_.PromptEnded(prompt_, stopped_);
  }

 private:
  link::AnswerLink& link_;
  const Prompts& prompts_;
  const int prompt_;
  const std::atomic<bool>& stop_;
  TextPieces pieces_;
  bool begun_ = false;  // Whether tokens came that stand for text.
  bool stopped_ = false;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Answerer>> Answerer::Create(const AttemptOptions& attempt,
                                                           execute::Device& device) {
  std::unique_ptr<Answerer> answerer(new Answerer(attempt, device));
  ASSIGN_OR_RETURN(program::ModelConfig config, program::ReadModelConfig(attempt.model_dir));
  RETURN_IF_ERROR(program::AddTokens(attempt.model_dir, attempt.added_tokens, config));
  RETURN_IF_ERROR(program::ChooseTask(attempt.task, config));
  ASSIGN_OR_RETURN(program::Program program, program::BuildProgram(config, attempt.mode));
  answerer->program_ = program::Frozen(std::move(program));
  ASSIGN_OR_RETURN(answerer->prompts_, Prompts::Read(attempt.prompts_file, config.vocabulary));
  RETURN_IF_ERROR(answerer->Lower());
  RETURN_IF_ERROR(answerer->TakeMemory());
  return answerer;
}

absl::Status Answerer::Lower() {
  const program::LowerOptions options{.key = attempt_.key,
                                      .machine = device_.machine(),
                                      .training = false,
                                      .head_rows = attempt_.head_rows};
  ASSIGN_OR_RETURN(
      layout_, program::LayOutGeneration(program_, program::RecomputePlan(program_, 0), options));
  bytes_ = program::StaticComponents(program_, attempt_.key, options.machine, /*context_bytes=*/0);
  bytes_.optimizer = 0;
  bytes_.arena = program::ArenaBytes(bytes_, layout_.bytes, options.machine);
  if (!attempt_.promised.has_value()) return absl::OkStatus();
  return CheckSameBytes({"the reservation", *attempt_.promised}, {"the worker", bytes_});
}

// As the trainer takes its own: the cap holds from the first byte on.
absl::Status Answerer::TakeMemory() {
  execute::TrackingAllocator& allocator = device_.allocator();
  const bool gpu = !device_.machine().cpu;
  const AnswerOptions& answers = *attempt_.answers;
  allocator.SetCap(attempt_.cap_bytes - FixedBytes());
  if (gpu) {
    RETURN_IF_ERROR(TakeArena());
    ASSIGN_OR_RETURN(block_, execute::DeviceBlock::Take(device_, BlockBytes()));
  }
  weights::LoadOptions load{.model_dir = attempt_.model_dir, .init_adapter = answers.adapter};
  if (!answers.checkpoint.empty()) {
    RETURN_IF_ERROR(checkpoint::Verify(answers.checkpoint).status());
    load.saved_weights = checkpoint::WeightsFileOf(answers.checkpoint);
  }
  ASSIGN_OR_RETURN(parameters_, weights::Parameters::Load(program_, load, device_));
  allocator.SetCap(attempt_.cap_bytes - FixedBytes());
  ASSIGN_OR_RETURN(buffers_, BatchBuffers::Allocate(program_, attempt_.key, device_));
  if (gpu)
    block_->Seal();
  else
    RETURN_IF_ERROR(TakeArena());
  executor_.emplace(parameters_->views(), device_);
  return CheckSameBytes({"the worker's account", bytes_}, {"what it took", Held()});
}

// On a GPU what is left of the block's last page is counted with the arena.
absl::Status Answerer::TakeArena() {
  const int64_t left = device_.machine().cpu ? 0 : BlockBytes() - (bytes_.held() - bytes_.arena);
  ASSIGN_OR_RETURN(arena_, execute::ArenaMemory::Allocate(device_, bytes_.arena - left));
  return absl::OkStatus();
}

int64_t Answerer::BlockBytes() const {
  return program::WholeGpuPages(bytes_.held() - bytes_.arena);
}

program::Components Answerer::Held() const {
  const weights::ParameterBytes parameters = parameters_->held(program_);
  program::Components held;
  held.weights = parameters.base;
  held.adapter = parameters.adapter;
  held.gradients = parameters.gradients;
  held.optimizer = parameters.masters;
  held.inputs = buffers_->held_bytes();
  if (!device_.machine().cpu) held.arena = BlockBytes() - held.held();
  held.arena += arena_->bytes();
  return held;
}

int64_t Answerer::FixedBytes() const {
  return attempt_.context_bytes + (parameters_.has_value() ? parameters_->mapped_bytes() : 0);
}

int64_t Answerer::peak_bytes() const {
  return FixedBytes() + device_.allocator().usage().peak_bytes;
}

absl::Status Answerer::AnswerAll(link::AnswerLink& link, const std::atomic<bool>& stop) {
  const AnswerOptions& answers = *attempt_.answers;
  Generator generator(program_, layout_, *executor_, *arena_, *buffers_);
  int number = 0;
  for (const Prompt& prompt : prompts_->prompts()) {
    Telling telling(link, *prompts_, number, stop);
    RETURN_IF_ERROR(generator
                        .Answer({.prompt = prompt.ids,
                                 .options = answers.sampling,
                                 .stops = [&](int32_t token) { return telling.Take(token); },
                                 .uniform =
                                     [&](int64_t token) {
                                       return SampleUniform(answers.seed, /*step=*/0, number,
                                                            token);
                                     }})
                        .status());
    RETURN_IF_ERROR(telling.End());
    ++number;
  }
  return link.Ended(peak_bytes());
}

AttemptResult RunAnswers(const AttemptOptions& attempt, execute::Device& device,
                         const std::atomic<bool>& stop_requested) {
  AttemptResult result;
  const absl::Status status = [&]() -> absl::Status {
    RETURN_IF_ERROR(checkpoint::MakeFolders(attempt.attempt_dir));
    ASSIGN_OR_RETURN(const auto link, link::AnswerLink::Dial(attempt));
    ASSIGN_OR_RETURN(const auto answerer, Answerer::Create(attempt, device));
    const absl::Status told = answerer->AnswerAll(*link, stop_requested);
    result.measured_peak_bytes = answerer->peak_bytes();
    return told;
  }();
  if (status.ok()) {
    result.outcome = AttemptResult::Outcome::kSucceeded;
    return result;
  }
  result.message = std::string(status.message());
  if (absl::IsCancelled(status)) {
    result.outcome = AttemptResult::Outcome::kStopped;
    return result;
  }
  const Failure failure = FailureOf(status);
  result.reason = failure.reason;
  result.failure_class = failure.failure_class;
  return result;
}

}  // namespace snug::train
