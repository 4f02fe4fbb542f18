#include "worker/train/small_step.h"

#include <cstdint>
#include <numeric>

#include "proto/snug/status_macros.h"
#include "worker/execute/host_copy.h"
#include "worker/program/lower.h"
#include "worker/program/plan.h"
#include "worker/program/replay.h"

namespace snug::train {
namespace {

program::ModelConfig SmallModel(const SmallShape& shape) {
  program::ModelConfig config;
  config.model_type = "llama";
  config.layers = 2;
  config.heads = config.kv_heads = 2;
  config.head_width = shape.head_width;
  config.width = config.heads * config.head_width;
  config.mlp_width = config.vocabulary = 128;
  config.window = shape.window;
  if (shape.window > 0) config.sliding = {false, true};
  return config;
}

// On a CPU so many that some runs are divided among threads and others are not, as in steps of a
// few milliseconds. What a GPU is given is hidden behind the giving, however little it is.
int64_t SmallBatch(const program::Machine& machine) { return machine.cpu ? 64 : 8; }

}  // namespace

absl::StatusOr<std::unique_ptr<SmallStep>> SmallStep::Prepare(execute::Device& device,
                                                              const SmallShape& shape) {
  std::unique_ptr<SmallStep> step(new SmallStep(device));
  const int64_t tokens = SmallBatch(device.machine());
  const program::TapeKey key = {.tokens = tokens, .documents = 1, .longest_document = tokens};
  RETURN_IF_ERROR(step->LowerFor(key, shape));
  RETURN_IF_ERROR(step->TakeParameters());
  ASSIGN_OR_RETURN(step->arena_, execute::ArenaMemory::Allocate(device, step->tape_.arena_bytes));
  ASSIGN_OR_RETURN(step->buffers_, BatchBuffers::Allocate(step->program_, key, device));
  const std::vector<int32_t> ids(static_cast<size_t>(tokens));
  ASSIGN_OR_RETURN(step->batch_, step->buffers_->FillTokens(ids, /*source=*/{}, /*past=*/0));
  if (shape.trains_tokens) RETURN_IF_ERROR(step->TrainTokens());
  step->executor_.emplace(step->parameters_, device);
  return step;
}

absl::Status SmallStep::LowerFor(const program::TapeKey& key, const SmallShape& shape) {
  ASSIGN_OR_RETURN(program_, program::BuildProgram(SmallModel(shape), shape.mode));
  const program::Plan keep = program::RecomputePlan(program_, 0);
  ASSIGN_OR_RETURN(tape_,
                   program::Lower(program_, keep, {.key = key, .machine = device_.machine()}));
  return absl::OkStatus();
}

absl::Status SmallStep::TakeParameters() {
  int64_t bytes = 0;
  for (const program::Parameter& parameter : program_.parameters) {
    const int64_t rows = parameter.shape.size() == 1 ? 1 : parameter.shape.front();
    const int64_t width = parameter.elements() / rows;
    execute::ParameterView& view = parameters_.emplace_back();
    view.value = {nullptr, rows, width, parameter.dtype};
    if (parameter.trainable) view.gradient = {nullptr, rows, width, program::DType::kF32};
    bytes += program::Aligned(view.value.bytes()) + program::Aligned(view.gradient.bytes());
  }
  ASSIGN_OR_RETURN(memory_, execute::DeviceBuffer::Allocate(device_, bytes));
  RETURN_IF_ERROR(execute::FillMemory(device_, memory_.data(), 0, bytes));
  char* next = memory_.data();
  for (execute::ParameterView& view : parameters_) {
    for (execute::View* of : {&view.value, &view.gradient}) {
      if (of->elements() == 0) continue;
      of->data = next;
      next += program::Aligned(of->bytes());
    }
  }
  return absl::OkStatus();
}

// Each one predicts token 0.
absl::Status SmallStep::TrainTokens() {
  const int64_t tokens = batch_.tokens, row_bytes = tokens * int64_t{sizeof(int64_t)};
  trained_rows_.resize(static_cast<size_t>(tokens));
  std::iota(trained_rows_.begin(), trained_rows_.end(), int64_t{0});
  ASSIGN_OR_RETURN(trained_, execute::DeviceBuffer::Allocate(device_, 3 * row_bytes));
  char* const rows = trained_.data();
  RETURN_IF_ERROR(execute::FillMemory(device_, rows, 0, trained_.bytes()));
  RETURN_IF_ERROR(execute::CopyMemory(device_, trained_rows_.data(), row_bytes, rows));
  batch_.trained = tokens;
  batch_.trained_rows = reinterpret_cast<const int64_t*>(rows);
  batch_.labels = reinterpret_cast<const int32_t*>(rows + row_bytes);
  batch_.weights = reinterpret_cast<const float*>(rows + 2 * row_bytes);
  return absl::OkStatus();
}

absl::Status SmallStep::Run() {
  return executor_->Run(tape_, *arena_, batch_, execute::StepScalars()).status();
}

program::Work SmallStep::work() const { return program::ReplayTape(tape_).work; }

}  // namespace snug::train
