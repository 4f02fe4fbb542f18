// The daemon's commands as a worker's socket gives them: each is a varint of its length and a
// WorkerCommand of that many bytes. They may come in any pieces.
#ifndef WORKER_LINK_COMMAND_FRAMES_H_
#define WORKER_LINK_COMMAND_FRAMES_H_

#include <cstddef>
#include <string>

#include "snug/v1/worker.pb.h"

namespace snug::link {

// A command has a few bytes, but for a plan: that of 1,000 layers of as many kinds has half of it.
inline constexpr size_t kMaxCommandBytes = 1 << 20;

// Takes one command off the front of `buffer`. It returns false when the command is not all there.
// A frame that cannot be one clears `healthy`.
bool TakeCommand(std::string& buffer, v1::WorkerCommand& command, bool& healthy);

}  // namespace snug::link

#endif  // WORKER_LINK_COMMAND_FRAMES_H_
