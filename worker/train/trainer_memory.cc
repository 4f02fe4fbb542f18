// What a plan takes of a trainer's memory: from the first byte on, and when another plan comes.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/lower.h"
#include "worker/train/static_bytes.h"
#include "worker/train/trainer.h"

namespace snug::train {

absl::StatusOr<Lowered> Trainer::Lower(const program::NamedPlan& named, int32_t head_rows,
                                       const std::optional<program::Components>& promised) const {
  Lowered lowered{.name = named.name};
  program::LowerOptions options{
      .key = attempt_.key, .machine = device_.machine(), .head_rows = head_rows};
  ASSIGN_OR_RETURN(const program::Plan plan, program::PlanOf(program_, named));
  ASSIGN_OR_RETURN(lowered.step, program::Lower(program_, plan, options));
  options.training = false;
  options.key = evaluation_key_;
  ASSIGN_OR_RETURN(lowered.evaluation, program::Lower(program_, plan, options));
  if (options.key = GenerationKey(); options.key.tokens > 0) {
    ASSIGN_OR_RETURN(lowered.generation, program::LayOutGeneration(program_, plan, options));
  }
  int64_t needed = std::max(
      {lowered.step.arena_bytes, lowered.evaluation.arena_bytes, lowered.generation.bytes});
  options.key = attempt_.key;
  if (attempt_.drift_steps > 0) RETURN_IF_ERROR(AddExactStep(plan, options, lowered, needed));
  program::Components& bytes = lowered.bytes;
  bytes = program::StaticComponents(program_, inputs_key_, options.machine, /*context_bytes=*/0);
  bytes.arena = program::ArenaBytes(bytes, needed, options.machine);
  bytes.host += lowered.step.host_bytes;
  if (promised.has_value())
    RETURN_IF_ERROR(CheckSameBytes({"the plan", *promised}, {"the worker", bytes}));
  return lowered;
}

// It takes no more than the arena that there is, unless that is below its least.
absl::Status Trainer::AddExactStep(const program::Plan& plan, const program::LowerOptions& options,
                                   Lowered& lowered, int64_t& arena_bytes) const {
  lowered.inexact_kinds = program::InexactKindsOf(program_, plan);
  if (lowered.inexact_kinds.empty() || !program::CanMeasureDrift(program_)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t least, program::LeastExactArena(program_, options));
  arena_bytes = std::max(arena_bytes, least);
  ASSIGN_OR_RETURN(lowered.exact, program::ExactStepWithin(program_, options, arena_bytes));
  return absl::OkStatus();
}

// The cap holds from the first byte on; what is mapped is known only once it is. A GPU gives whole
// pages: so of one all that stays is taken at once, and the arena, which may change, by itself.
absl::Status Trainer::TakeMemory() {
  execute::TrackingAllocator& allocator = device_.allocator();
  const bool capped = attempt_.cap_bytes > 0, gpu = !device_.machine().cpu;
  if (capped) allocator.SetCap(attempt_.cap_bytes - FixedBytes());
  if (gpu) {
    RETURN_IF_ERROR(TakeArena(lowered_));
    ASSIGN_OR_RETURN(block_, execute::DeviceBlock::Take(device_, BlockBytes()));
  }
  ASSIGN_OR_RETURN(parameters_, weights::Parameters::Load(program_,
                                                          {.model_dir = attempt_.model_dir,
                                                           .init_adapter = attempt_.init_adapter,
                                                           .seed = attempt_.training.seed,
                                                           .shared_file = attempt_.shared_weights},
                                                          device_));
  if (capped) allocator.SetCap(attempt_.cap_bytes - FixedBytes());
  ASSIGN_OR_RETURN(optimizer_,
                   Optimizer::Create(program_, *parameters_, attempt_.training, device_));
  ASSIGN_OR_RETURN(buffers_, BatchBuffers::Allocate(program_, inputs_key_, device_));
  if (gpu)
    block_->Seal();
  else
    RETURN_IF_ERROR(TakeArena(lowered_));
  executor_.emplace(parameters_->views(), device_);
  return CheckSameBytes({"the worker's account", lowered_.bytes}, {"what it took", Held()});
}

// On a GPU what is left of the block's last page is counted with the arena.
absl::Status Trainer::TakeArena(const Lowered& lowered) {
  const program::Components& bytes = lowered.bytes;
  const int64_t left = device_.machine().cpu ? 0 : BlockBytes() - (bytes.held() - bytes.arena);
  ASSIGN_OR_RETURN(
      arena_, execute::ArenaMemory::Allocate(device_, bytes.arena - left, lowered.step.host_bytes));
  return absl::OkStatus();
}

int64_t Trainer::BlockBytes() const {
  return program::WholeGpuPages(lowered_.bytes.held() - lowered_.bytes.arena);
}

// The old arena goes first: never are both there. What cannot be done leaves the plan before in
// force, as long as its arena can be had again.
absl::StatusOr<PlanAnswer> Trainer::ChangePlan(const PlanOrder& order) {
  PlanAnswer answer{.number = order.number, .global_step = global_step_};
  execute::TrackingAllocator& allocator = device_.allocator();
  absl::StatusOr<Lowered> lowered = Lower(order.plan, order.head_rows, order.promised);
  absl::Status changed = lowered.status();
  if (changed.ok()) {
    const int64_t cap_before = allocator.usage().cap_bytes;
    arena_.reset();
    device_.ReturnFreeMemory();
    if (order.cap_bytes > 0) allocator.SetCap(order.cap_bytes - FixedBytes());
    changed = TakeArena(*lowered);
    if (changed.ok()) {
      lowered_ = *std::move(lowered);
      allocator.ResetPeak();
    } else {
      allocator.SetCap(cap_before);
      RETURN_IF_ERROR(TakeArena(lowered_));
    }
  }
  answer.refusal = std::string(changed.message());
  answer.current_bytes = memory().current_bytes;
  RETURN_IF_ERROR(
      CheckSameBytes({"the worker's account", lowered_.bytes}, {"what it took", Held()}));
  return answer;
}

program::Components Trainer::Held() const {
  const weights::ParameterBytes parameters = parameters_->held(program_);
  program::Components held;
  held.weights = parameters.base;
  held.adapter = parameters.adapter;
  held.gradients = parameters.gradients;
  const bool on_host = program_.optimizer_on_host;
  (on_host ? held.host : held.optimizer) = parameters.masters + optimizer_->moment_bytes();
  if (!device_.machine().cpu) held.optimizer += program::kNormBytes;
  held.inputs = buffers_->held_bytes();
  if (!device_.machine().cpu) held.arena = BlockBytes() - held.held();
  held.arena += arena_->bytes();
  held.host += arena_->host_bytes();
  return held;
}

int64_t Trainer::FixedBytes() const {
  const int64_t mapped = parameters_.has_value() ? parameters_->mapped_bytes() : 0;
  const int64_t data = device_.host_reads_memory() ? data_bytes_ : 0;
  return attempt_.context_bytes + data + mapped;
}

Memory Trainer::memory() const {
  const execute::TrackingAllocator::Usage usage = device_.allocator().usage();
  const int64_t fixed = FixedBytes();
  int64_t beside = lowered_.bytes.host + dataset_->bytes();
  if (evaluation_.has_value()) beside += evaluation_->bytes();
  return {.current_bytes = fixed + usage.current_bytes,
          .peak_bytes = fixed + usage.peak_bytes,
          .arena_bytes = arena_->bytes(),
          .beside_bytes = device_.host_reads_memory() ? beside : 0};
}

}  // namespace snug::train
