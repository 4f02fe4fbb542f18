#include "tests/worker/program/copy_order.h"

#include <utility>

namespace snug::program {

void CopyOrder::Begin() {
  late_streams_.clear();
  events_.clear();
}

void CopyOrder::Issue(const Instruction& line, std::function<void()> run) {
  if (streams_ != nullptr) return streams_->Issue(line.stream, std::move(run));
  if (!late_ || line.stream == kComputeStream) return run();
  late_streams_[line.stream].waiting.push_back({.run = std::move(run), .behind = {}});
}

void CopyOrder::Order(const Instruction& line) {
  const bool records = line.kind == Instruction::Kind::kRecord;
  if (streams_ != nullptr && records) return streams_->Record(line.event, line.stream);
  if (streams_ != nullptr) return streams_->Wait(line.event, line.stream);
  if (!late_) return;
  if (records) {
    // What computes has run all that it was given.
    const Stream& stream = late_streams_[line.stream];
    const int64_t given = stream.done + static_cast<int64_t>(stream.waiting.size());
    events_[line.event] = {line.stream, line.stream == kComputeStream ? 0 : given};
  } else if (line.stream == kComputeStream) {
    RunUpTo(events_.at(line.event));
  } else {
    late_streams_[line.stream].waiting.push_back({.run = [] {}, .behind = events_.at(line.event)});
  }
}

void CopyOrder::Go() {
  if (!random_.has_value()) return;
  for (auto& [number, stream] : late_streams_) {
    while (!stream.waiting.empty() && (*random_)() % 2 == 0) RunFirst(stream);
  }
}

void CopyOrder::RunFirst(Stream& stream) {
  const Task task = std::move(stream.waiting.front());
  stream.waiting.pop_front();
  RunUpTo(task.behind);
  task.run();
  ++stream.done;
}

void CopyOrder::RunUpTo(const Point& point) {
  Stream& stream = late_streams_[point.stream];
  while (stream.done < point.task) RunFirst(stream);
}

}  // namespace snug::program
