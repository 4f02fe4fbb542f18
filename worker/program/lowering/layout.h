// The second half of lowering: instances of a script get buffers, in place where lifetimes allow,
// and buffers get offsets.
//
// Stashes form a stack from the arena's bottom, ordered by death in backward: what dies first lies
// on top. Everything else hangs from the arena's top: first what lives across blocks (the residual
// stream, its gradient), then, pass by pass of a block, what lives within it. Passes of the same
// shape are packed once. What lies in the host's memory is a stack of its own.
#ifndef WORKER_PROGRAM_LOWERING_LAYOUT_H_
#define WORKER_PROGRAM_LOWERING_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "worker/program/lowering/script.h"
#include "worker/program/tape.h"

namespace snug::program {

struct Layout {
  std::vector<Instruction> instructions;  // Operands name slots.
  std::vector<Slot> slots;
  int64_t stash_bytes = 0;  // Height of the stack when all of it is there.
  int64_t arena_bytes = 0;
  int64_t host_bytes = 0;
};

Layout LayOut(Script script);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_LOWERING_LAYOUT_H_
