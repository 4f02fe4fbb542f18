#include "worker/link/command_frames.h"

#include <google/protobuf/io/coded_stream.h>

namespace snug::link {
namespace {

constexpr size_t kMaxLengthBytes = 5;  // A number of 32 bits has no more in a varint.

}  // namespace

bool TakeCommand(std::string& buffer, v1::WorkerCommand& command, bool& healthy) {
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(buffer.data()),
                                               static_cast<int>(buffer.size()));
  uint32_t size = 0;
  if (!input.ReadVarint32(&size)) {
    healthy = buffer.size() < kMaxLengthBytes;
    return false;
  }
  const auto header = static_cast<size_t>(input.CurrentPosition());
  healthy = header <= kMaxLengthBytes && size <= kMaxCommandBytes;
  if (!healthy || buffer.size() < header + size) return false;
  healthy = command.ParseFromArray(buffer.data() + header, static_cast<int>(size));
  buffer.erase(0, header + size);
  return healthy;
}

}  // namespace snug::link
