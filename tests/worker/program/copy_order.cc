#include "tests/worker/program/copy_order.h"

#include <utility>

namespace snug::program {

void CopyOrder::Issue(const Instruction& line, std::function<void()> copy) {
  if (streams_ != nullptr) return streams_->Issue(line.stream, std::move(copy));
  if (late_ && line.stream != kComputeStream) return waiting_.push_back(std::move(copy));
  copy();
}

void CopyOrder::Order(const Instruction& line) {
  const bool records = line.kind == Instruction::Kind::kRecord;
  if (streams_ != nullptr && records) return streams_->Record(line.event, line.stream);
  if (streams_ != nullptr) return streams_->Wait(line.event, line.stream);
  if (records || line.stream != kComputeStream) return;
  for (const auto& copy : waiting_) copy();
  waiting_.clear();
}

}  // namespace snug::program
