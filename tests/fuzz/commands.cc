// What the daemon says to a worker: however the bytes come in, the same commands are taken.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "worker/link/command_frames.h"
#include "worker/link/convert.h"

namespace {

// Where each command ends, up to the first frame that is none.
std::vector<size_t> Ends(const std::string& bytes, size_t piece) {
  std::vector<size_t> ends;
  std::string buffer;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    buffer += bytes.substr(at, piece);
    const size_t came = std::min(at + piece, bytes.size());
    bool healthy = true;
    snug::v1::WorkerCommand command;
    while (snug::link::TakeCommand(buffer, command, healthy)) {
      ends.push_back(came - buffer.size());
      snug::link::OrderFrom(command.change_plan()).status().IgnoreError();
    }
    if (!healthy) return ends;
  }
  return ends;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  const std::vector<size_t> ends = Ends(text, 1);
  if (ends != Ends(text, 7) || ends != Ends(text, size + 1)) abort();
  return 0;
}
