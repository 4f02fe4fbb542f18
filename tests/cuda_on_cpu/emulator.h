// Runs CUDA kernels that were compiled as C++, to test their logic where there is no GPU: blocks
// one after another, the threads of a block as fibres of one CPU thread that change places only at
// barriers and warp operations. It says nothing about speed.
//
// What a launch does wrong is reported and ends it (see memory_watch.h for memory):
// - a barrier or a warp operation that some of its threads never reach,
// - a warp operation whose lanes stand in different lines, or name different masks,
// - block sizes and masks that no GPU accepts, and blocks above the kernel's __launch_bounds__.
// Of warp operations __syncwarp alone orders memory: shuffles and votes exchange registers.
// Not modelled: several blocks at once, memory ordering weaker than sequential, dynamic shared
// memory, streams (a launch is done when it returns, or when whoever queues launches runs it).
#ifndef TESTS_CUDA_ON_CPU_EMULATOR_H_
#define TESTS_CUDA_ON_CPU_EMULATOR_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace snug::cuda_on_cpu {

struct Index3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr uint64_t count() const { return uint64_t{x} * y * z; }
};

struct ThreadPlace {
  Index3 thread, block, block_size, grid_size;
};
extern ThreadPlace here;  // Of the thread that is running.

// Runs thread(call) once per thread of the grid. `call` is memory that all of them may read. False:
// the launch did something wrong; TakeLastReport tells what.
bool RunGrid(Index3 grid, Index3 block, void (*thread)(const void* call), const void* call,
             size_t call_bytes);

// A launch as its stream gets it.
struct GridLaunch {
  const void* stream;
  const void* kernel;
  Index3 grid, block;
  void (*thread)(const void* call);
  const void* call;  // Until Launch returns.
  size_t call_bytes;
};
// Runs it at once, or hands it to the queue if there is one. False: the kernel does not allow such
// blocks, or what ran did something wrong.
bool Launch(const GridLaunch& launch);
// Who gets the launches from now on, to run them by RunGrid when it likes; null: nobody.
void SetLaunchQueue(void (*queue)(void* self, const GridLaunch& launch), void* self);

// What the last failed launch did wrong, e.g. "normalize.cu:31: barrier: 4 of 64 threads of block
// (0, 0, 0) have ended". Empty when none failed since it was last asked.
std::string TakeLastReport();

// The order in which the threads of a block take their turns: 0 = by number, else shuffled by this
// seed. Results must not depend on it.
void SetThreadOrder(uint64_t seed);

// ---- called by the emulated intrinsics ----------------------------------------------------------

struct Site {
  const char* file;
  int line;
};

// __syncthreads; `vote` is handed to all: how many were nonzero (__syncthreads_count).
int BlockBarrier(bool vote, Site site);

// The kind of __syncwarp.
inline constexpr char kWarpBarrier[] = "__syncwarp";

// All lanes of `mask` give eight bytes and see those of all 32 (of lanes outside the mask: 0).
// `kind` names the operation. The result is valid until the lane's next operation.
const uint64_t* WarpExchange(const char* kind, unsigned mask, uint64_t mine, Site site);

int Lane();

// Ends the launch with this report, printf's way: the fibre that calls is left as it is, so nothing
// on it may own memory. Only on a fibre.
[[noreturn]] void Fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace snug::cuda_on_cpu

#endif  // TESTS_CUDA_ON_CPU_EMULATOR_H_
