#include "worker/execute/executor.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/host_copy.h"
#include "worker/execute/torch_errors.h"

namespace snug::execute {
namespace {

using program::Direction;
using program::Instruction;
using program::kNoSlot;

// Serves what an op allocates from its slice, for as long as the object lives.
class OpenedSlice {
 public:
  OpenedSlice(TrackingAllocator& allocator, const Slice& slice) : allocator_(allocator) {
    allocator_.OpenSlice(slice);
  }
  ~OpenedSlice() { allocator_.AbandonSlice(); }
  int64_t Close() { return allocator_.CloseSlice(); }

 private:
  TrackingAllocator& allocator_;
};

// A device's array that the host looks at once: itself, or a copy.
template <typename T>
class Found {
 public:
  Found(Device& device, const T* array, int64_t n) : array_(array) {
    if (device.host_reads_memory() || n == 0) return;
    copy_.resize(static_cast<size_t>(n));
    device.Copy(copy_.data(), array, n * static_cast<int64_t>(sizeof(T)), /*stream=*/0);
    array_ = copy_.data();
  }
  const T& operator[](int64_t i) const { return array_[i]; }

 private:
  const T* array_;
  std::vector<T> copy_;
};

// Of a fused module's parameters, the rows that are the op's.
ParameterView RowsOf(const ParameterView& whole, const program::OpAttributes& op) {
  if (op.rows == 0) return whole;
  ParameterView part = {whole.value.Rows(op.row, op.rows), {}};
  if (whole.gradient) part.gradient = whole.gradient.Rows(op.row, op.rows);
  return part;
}

// Rows of a kind that a batch has none of: those of a source that an encoder has read before.
bool GivesNothing(const OpRun& run, const Instruction& line) {
  return line.direction == Direction::kForward && run.out[0] && run.out[0].rows == 0;
}

absl::Status CheckCovered(const program::Tape& tape, const Batch& batch) {
  program::TapeKey key{.tokens = batch.tokens, .documents = batch.documents};
  if (tape.key.trained > 0) key.trained = batch.trained;
  key.source_tokens = batch.source_tokens;
  key.merged = batch.merged;
  for (int64_t d = 0; d < batch.documents; ++d) {
    key.longest_document = std::max(key.longest_document, batch.offsets[d + 1] - batch.offsets[d]);
    if (batch.source_offsets == nullptr) continue;
    key.longest_source =
        std::max(key.longest_source, batch.source_offsets[d + 1] - batch.source_offsets[d]);
  }
  if (tape.key.Covers(key)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("a batch of ", key.tokens, " tokens in ", key.documents,
                                          " documents, the longest of ", key.longest_document,
                                          ", does not fit the tape of ", tape.key.tokens, ", ",
                                          tape.key.documents, ", ", tape.key.longest_document));
}

}  // namespace

Executor::Executor(std::span<const ParameterView> parameters, Device& device)
    : parameters_(parameters), device_(device), functions_(&device.ops()) {}

absl::StatusOr<double> Executor::Run(const program::Tape& tape, SlotMemory& memory,
                                     const Batch& batch, const StepScalars& scalars,
                                     const UpdateFunction& update) {
  RETURN_IF_ERROR(CheckCovered(tape, batch));
  if (batch.overflow != nullptr)
    RETURN_IF_ERROR(FillMemory(device_, batch.overflow, 0, sizeof(int32_t)));
  Frame frame{tape, memory, batch, scalars, update};
  token_sums_ = {};
  workspace_use_.assign(tape.instructions.size(), {});
  wrong_beside_ = absl::OkStatus();
  const absl::Status ran = RunLines(frame);
  // Of a run that failed, too: what is on its way writes into memory that may go now.
  const absl::Status done = device_.Synchronize();
  RETURN_IF_ERROR(ran);
  RETURN_IF_ERROR(done);
  RETURN_IF_ERROR(CheckStreams(batch));
  double loss = 0.0;
  if (batch.next_logits == nullptr) RETURN_IF_ERROR(CatchTorch([&] { loss = Sums(batch); }));
  return scalars.loss_scale * loss;
}

absl::Status Executor::RunLines(Frame& frame) {
  for (size_t t = 0; t < frame.tape.instructions.size();) {
    ASSIGN_OR_RETURN(t, RunLine(frame, t));
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> Executor::RunLine(Frame& frame, size_t t) {
  RETURN_IF_ERROR(RunWithSlots(frame, t));
  const Instruction& line = frame.tape.instructions[t];
  if (line.kind != Instruction::Kind::kLoop) return t + 1;
  RETURN_IF_ERROR(RunLoop(frame, t));
  return t + 1 + static_cast<size_t>(line.loop.lines);
}

absl::Status Executor::RunLoop(Frame& frame, size_t t) {
  const program::LoopHead& loop = frame.tape.instructions[t].loop;
  const int64_t rows = frame.batch.Of(loop.rows);
  frame.loop = &loop;
  frame.loop_line = t;
  int64_t first = 0;
  do {  // Of no rows there is a pass, in which gradients begin.
    frame.pass = {.first_row = first,
                  .rows = std::min(loop.rows_of_pass, rows - first),
                  .last = first + loop.rows_of_pass >= rows};
    for (int32_t i = 1; i <= loop.lines; ++i)
      RETURN_IF_ERROR(RunWithSlots(frame, t + static_cast<size_t>(i)));
    first += loop.rows_of_pass;
  } while (first < rows);
  frame.loop = nullptr;
  frame.pass = {};
  return absl::OkStatus();
}

absl::Status Executor::RunWithSlots(Frame& frame, size_t t) {
  const program::Tape& tape = frame.tape;
  for (int32_t slot : tape.births.at(t)) RETURN_IF_ERROR(frame.memory.Born(tape, slot));
  RETURN_IF_ERROR(Step(frame, tape.instructions[t], t));
  for (int32_t slot : tape.deaths.at(t)) {
    // What is not of a pass alone lives until the last.
    const bool outer =
        static_cast<size_t>(tape.slots[static_cast<size_t>(slot)].first) <= frame.loop_line;
    if (frame.loop != nullptr && outer && !frame.pass.last) continue;
    RETURN_IF_ERROR(frame.memory.Died(tape, slot));
  }
  return absl::OkStatus();
}

absl::Status Executor::CheckStreams(const Batch& batch) {
  if (batch.overflow == nullptr) return absl::OkStatus();
  bool overflow = false;
  RETURN_IF_ERROR(
      CatchTorch([&] { overflow = Found<int32_t>(device_, batch.overflow, 1)[0] != 0; }));
  if (!overflow) return absl::OkStatus();
  return absl::OutOfRangeError(
      "a stream of the reversible model is not finite or left [-1024, 1024), the range of its "
      "numbers");
}

// In double, in the order of the rows: the same bits on every device.
double Executor::Sums(const Batch& batch) {
  const Found<double> losses(device_, batch.row_loss, batch.trained);
  const Found<double> entropies(device_, batch.row_entropy, batch.trained);
  const Found<int32_t> correct(device_, batch.row_correct, batch.trained);
  double loss = 0.0;
  for (int64_t i = 0; i < batch.trained; ++i) {
    loss += losses[i];
    token_sums_.entropy += entropies[i];
    token_sums_.correct += correct[i];
  }
  token_sums_.trained = batch.trained;
  return loss;
}

absl::Status Executor::Step(Frame& frame, const Instruction& line, size_t t) {
  const auto at = [&](int32_t slot) { return frame.memory.At(frame.tape, slot); };
  switch (line.kind) {
    case Instruction::Kind::kRun:
      return RunOp(frame, line, t);
    case Instruction::Kind::kCopy: {
      const int32_t to = line.operands.out[0].slot, from = line.operands.in[0].slot;
      const int64_t bytes = frame.tape.slots[static_cast<size_t>(to)].bytes;
      return CatchTorch([&] { device_.CopyAsync(at(to), at(from), bytes, line.stream); });
    }
    case Instruction::Kind::kRecord:
      return CatchTorch([&] { device_.Record(line.event, line.stream); });
    case Instruction::Kind::kWait:
      RETURN_IF_ERROR(CatchTorch([&] { device_.Wait(line.event, line.stream); }));
      return WrongBeside();
    case Instruction::Kind::kLoop:
      return absl::OkStatus();  // RunLoop runs its body.
    case Instruction::Kind::kUpdate: {
      if (!frame.update) return absl::InternalError("a gradient is released, and nobody takes it");
      const View gradient = GradientAt(line.parameters[0], at(line.operands.in[0].slot));
      absl::Status taken;  // What is thrown must not leave while other streams run.
      RETURN_IF_ERROR(CatchTorch([&] { taken = frame.update(line.parameters[0], gradient); }));
      return taken;
    }
  }
  return absl::InternalError("an instruction of no known kind");
}

absl::Status Executor::RunOp(Frame& frame, const Instruction& line, size_t t) {
  OpRun run = Bind(frame, line);
  if (GivesNothing(run, line)) return absl::OkStatus();
  const OpFunctions& functions = (*functions_)[static_cast<size_t>(line.op->code)];
  const auto function =
      line.direction == Direction::kForward ? functions.forward : functions.backward;
  Slice slice{.op = line.op->name.c_str(), .block = line.block};
  if (line.workspace != kNoSlot) {
    slice.base = frame.memory.At(frame.tape, line.workspace);
    slice.bytes = frame.tape.slots[static_cast<size_t>(line.workspace)].bytes;
  }
  if (line.stream == program::kComputeStream) return RunInSlice(run, slice, function, t);
  return CatchTorch([&] {
    device_.Issue(line.stream, [this, run, slice, function, t] {
      const absl::Status status = RunInSlice(run, slice, function, t);
      const std::lock_guard<std::mutex> lock(mutex_);
      wrong_beside_.Update(status);
    });
  });
}

absl::Status Executor::WrongBeside() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return wrong_beside_;
}

absl::Status Executor::RunInSlice(OpRun run, const Slice& slice, void (*function)(const OpRun&),
                                  size_t t) {
  return CatchTorch([&] {
    OpenedSlice opened(device_.allocator(), slice);
    const auto start = std::chrono::steady_clock::now();
    if (run.d_out[0] && run.d_out[0].rows == 0) {  // No product of no rows writes anything.
      run.BeginGradients();
      run.begins = 0;
    }
    function(run);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    WorkspaceUse& use = workspace_use_[t];
    use = {slice.bytes, std::max(use.used_bytes, opened.Close()), use.seconds + took.count()};
  });
}

View Executor::GradientAt(int32_t parameter, char* slot) const {
  const View& value = parameters_[static_cast<size_t>(parameter)].value;
  return {slot, value.rows, value.width, program::DType::kF32};
}

uint8_t Executor::Begun(const Frame& frame, const Instruction& line) {
  if (frame.loop != nullptr && frame.pass.first_row > 0) return 0;
  uint8_t begun = line.begins;
  for (size_t i = 0; i < line.gradients.size() && frame.scalars.accumulate; ++i) {
    // Of a released gradient a step has one micro-batch.
    if (line.gradients[i] == kNoSlot) begun &= static_cast<uint8_t>(~(1u << i));
  }
  return begun;
}

OpRun Executor::Bind(const Frame& frame, const Instruction& line) const {
  OpRun run;
  run.op = line.op;
  run.block = line.block;
  run.op_index = line.op_index;
  run.accumulate = line.accumulate;
  run.begins = Begun(frame, line);
  run.batch = &frame.batch;
  run.scalars = frame.scalars;
  run.device = &device_;
  run.stream_number = line.stream;
  run.first_row = frame.pass.first_row;
  run.rows = frame.pass.rows;
  const auto bind = [&](const auto& operands, auto& views) {
    for (size_t i = 0; i < operands.size(); ++i) {
      const program::Operand& operand = operands[i];
      if (!operand) continue;
      char* const slot = frame.memory.At(frame.tape, operand.slot);
      views[i] = {slot, operand.RowsOf(frame.batch.Of(operand.rows)), operand.width, operand.dtype};
      if (frame.loop == nullptr || operand.rows != frame.loop->rows) continue;
      views[i] = views[i].Rows(operand.of_pass ? 0 : frame.pass.first_row, frame.pass.rows);
    }
  };
  bind(line.operands.in, run.in);
  bind(line.operands.out, run.out);
  bind(line.operands.d_out, run.d_out);
  bind(line.operands.d_in, run.d_in);
  for (size_t i = 0; i < line.parameters.size(); ++i) {
    if (line.parameters[i] < 0) continue;
    ParameterView whole = parameters_[static_cast<size_t>(line.parameters[i])];
    if (line.gradients[i] != kNoSlot)
      whole.gradient =
          GradientAt(line.parameters[i], frame.memory.At(frame.tape, line.gradients[i]));
    run.parameters[i] = RowsOf(whole, line.op->attributes);
    if ((line.wanted.parameters >> i & 1) == 0) run.parameters[i].gradient = {};
  }
  return run;
}

}  // namespace snug::execute
