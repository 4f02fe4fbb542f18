#include "tests/worker/execute/gpu/uploaded_run.h"

#include "worker/execute/slot_memory.h"
#include "worker/program/lower.h"

namespace snug::execute {

UploadedRun::UploadedRun(ToyRun& run, Device& device) : run_(run), device_(device) {
  for (ParameterView parameter : run.parameters()) {
    parameter.value.data = Upload(parameter.value.data, parameter.value.bytes());
    if (parameter.gradient)
      parameter.gradient.data = Upload(parameter.gradient.data, parameter.gradient.bytes());
    parameters_.push_back(parameter);
  }
  UploadBatch(run.batch());
}

void* UploadedRun::Upload(const void* from, int64_t bytes) {
  buffers_.push_back(*DeviceBuffer::Allocate(device_, bytes));
  device_.Copy(buffers_.back().data(), from, bytes, 0);
  return buffers_.back().data();
}

// What the host reads stays where it is.
void UploadedRun::UploadBatch(const Batch& batch) {
  const int64_t angles = batch.tokens * run_.program().config.rotary_width() / 2;
  batch_ = batch;
  batch_.ids = UploadArray(batch.ids, batch.tokens);
  batch_.positions = UploadArray(batch.positions, batch.tokens);
  batch_.device_offsets = UploadArray(batch.offsets, batch.documents + 1);
  const std::vector<int32_t> offsets32(batch.offsets, batch.offsets + batch.documents + 1);
  batch_.device_offsets32 = UploadArray(offsets32.data(), batch.documents + 1);
  batch_.trained_rows = UploadArray(batch.trained_rows, batch.trained);
  batch_.labels = UploadArray(batch.labels, batch.trained);
  batch_.weights = UploadArray(batch.weights, batch.trained);
  batch_.cos = UploadArray(batch.cos, angles);
  batch_.sin = UploadArray(batch.sin, angles);
  batch_.local_cos = UploadArray(batch.local_cos, angles);
  batch_.local_sin = UploadArray(batch.local_sin, angles);
  batch_.row_loss = UploadArray(batch.row_loss, batch.trained);
  batch_.row_entropy = UploadArray(batch.row_entropy, batch.trained);
  batch_.row_correct = UploadArray(batch.row_correct, batch.trained);
  if (batch.overflow != nullptr) batch_.overflow = UploadArray(batch.overflow, 1);
  if (batch.source_tokens == 0) return;
  std::vector<int64_t> counts;
  for (int64_t d = 0; d < batch.documents; ++d)
    counts.push_back(batch.source_offsets[d + 1] - batch.source_offsets[d]);
  batch_.source_ids = UploadArray(batch.source_ids, batch.source_tokens);
  batch_.device_source_offsets = UploadArray(batch.source_offsets, batch.documents + 1);
  batch_.device_source_counts = UploadArray(counts.data(), batch.documents);
}

program::Tape UploadedRun::Lower(const program::Plan& plan, bool training) const {
  return *program::Lower(run_.program(), plan,
                         {.key = run_.key(), .machine = device_.machine(), .training = training});
}

absl::StatusOr<double> UploadedRun::RunInArena(const program::Tape& tape) {
  for (const ParameterView& parameter : parameters_) {
    if (parameter.gradient) device_.Zero(parameter.gradient.data, parameter.gradient.bytes(), 0);
  }
  auto memory = ArenaMemory::Allocate(device_, tape.arena_bytes, tape.host_bytes);
  if (!memory.ok()) return memory.status();
  Executor executor(parameters_, device_);
  return executor.Run(tape, *memory, batch_, {.loss_scale = 1.0 / 16, .seed = 3, .step = 5});
}

void UploadedRun::AskForNextLogits() {
  const int64_t bytes = run_.program().config.vocabulary * int64_t{sizeof(float)};
  buffers_.push_back(*DeviceBuffer::Allocate(device_, bytes));
  batch_.next_logits = reinterpret_cast<float*>(buffers_.back().data());
}

std::vector<float> UploadedRun::Gradients() {
  std::vector<float> all;
  for (const ParameterView& parameter : parameters_) {
    const View& gradient = parameter.gradient;
    if (!gradient) continue;
    const size_t begin = all.size();
    all.resize(begin + static_cast<size_t>(gradient.elements()));
    device_.Copy(all.data() + begin, gradient.data, gradient.bytes(), 0);
  }
  return all;
}

}  // namespace snug::execute
