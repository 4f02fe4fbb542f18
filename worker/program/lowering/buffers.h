// Which instances of a script share a buffer: those that take one another's in place.
#ifndef WORKER_PROGRAM_LOWERING_BUFFERS_H_
#define WORKER_PROGRAM_LOWERING_BUFFERS_H_

#include <cstdint>
#include <vector>

#include "worker/program/lowering/script.h"

namespace snug::program {

struct Buffer {
  int64_t bytes = 0;
  int32_t first = 0;  // Lines.
  int32_t last = 0;
  bool kept = false;  // Holds a value, or a form of one, that backward reads.
  bool on_host = false;
};

struct Buffers {
  std::vector<Buffer> buffers;
  std::vector<int32_t> of;  // By instance: its buffer.
};

Buffers ShareBuffers(const Script& script);

// By line: until which line what it uses is held. That is itself, but for what runs ahead: there it
// is the line that waits for it.
std::vector<int32_t> HeldUntil(const Script& script);

// The pass in which a line lies, by line.
std::vector<int32_t> PassOfLines(const Script& script);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_LOWERING_BUFFERS_H_
