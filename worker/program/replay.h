// Replay: walks a tape for its bytes and its time, without a device. What it says is what the
// worker will measure.
#ifndef WORKER_PROGRAM_REPLAY_H_
#define WORKER_PROGRAM_REPLAY_H_

#include <cstdint>
#include <vector>

#include "worker/program/op_table.h"
#include "worker/program/stash.h"
#include "worker/program/tape.h"

namespace snug::program {

// Live bytes at one instant, by what they are for.
struct LiveBytes {
  int64_t stash = 0;
  int64_t scratch = 0;
  int64_t workspace = 0;
  int64_t host = 0;  // Of the host's memory: not in the total.
  int64_t total() const { return stash + scratch + workspace; }
};

struct Replay {
  LiveBytes peak;  // At the instant of the highest total, true sizes.
  int32_t peak_instruction = 0;
  int64_t peak_values_bytes = 0;  // Highest stash + scratch, workspace left out.
  int64_t arena_bytes = 0;
  int64_t host_bytes = 0;
  Work work;
};

Replay ReplayTape(const Tape& tape);

// What a run of the tape takes on a machine. A device's copies run beside what it computes. What it
// computes on two streams at once takes no less than either alone, nor less than one device takes
// for the work of both, nor than one host for all of their runs: what is gained is the time in
// which the device waits for the host, or the host for the device. On a CPU streams share its cores
// and its memory, and it takes the sum.
double SecondsOf(const Tape& tape, const Machine& machine);

// Live bytes after each instruction began: the timeline that `snug plan --explain` draws.
std::vector<LiveBytes> Timeline(const Tape& tape);

// By slot, how its value is kept where it is of the stash: forms by what writes them, all others
// as they are.
std::vector<Stash> StashesOfSlots(const Tape& tape);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_REPLAY_H_
