#include "worker/program/replay.h"

#include <algorithm>
#include <array>
#include <map>

namespace snug::program {
namespace {

int64_t* Component(LiveBytes& live, Region region) {
  switch (region) {
    case Region::kStash:
      return &live.stash;
    case Region::kWorkspace:
      return &live.workspace;
    case Region::kHost:
      return &live.host;
    case Region::kScratch:
      break;
  }
  return &live.scratch;
}

Work TapeWork(const Tape& tape) {
  Work total;
  for (const Instruction& line : tape.instructions) total += line.work;
  return total;
}

}  // namespace

double SecondsOf(const Tape& tape, const Machine& machine) {
  if (machine.cpu) {
    double sum = 0.0;
    for (const Instruction& line : tape.instructions) sum += SecondsOf(line.work, machine);
    return sum;
  }
  std::array<double, kStreams> now = {};  // By stream.
  std::map<int16_t, double> events;
  Work of_both;  // Since a recovery may begin: of all streams that compute.
  for (const Instruction& line : tape.instructions) {
    double& clock = now[line.stream];
    clock += SecondsOf(line.work, machine);
    if (line.stream != kCopyStream) of_both += line.work;
    if (line.kind == Instruction::Kind::kRecord) events[line.event] = clock;
    if (line.kind == Instruction::Kind::kWait) clock = std::max(clock, events.at(line.event));
    if (line.event == kMayRecover && line.stream == kComputeStream) of_both = {};
    if (line.event == kIsRecovered && line.stream == kComputeStream)
      clock = std::max(clock, events.at(kMayRecover) + SecondsOf(of_both, machine));
  }
  return *std::max_element(now.begin(), now.end());
}

std::vector<LiveBytes> Timeline(const Tape& tape) {
  std::vector<LiveBytes> live(tape.instructions.size() + 1);
  for (const Slot& slot : tape.slots) {
    *Component(live[static_cast<size_t>(slot.first)], slot.region) += slot.bytes;
    *Component(live[static_cast<size_t>(slot.last) + 1], slot.region) -= slot.bytes;
  }
  for (size_t t = 1; t < live.size(); ++t) {
    live[t].stash += live[t - 1].stash;
    live[t].scratch += live[t - 1].scratch;
    live[t].workspace += live[t - 1].workspace;
    live[t].host += live[t - 1].host;
  }
  live.pop_back();
  return live;
}

std::vector<Stash> StashesOfSlots(const Tape& tape) {
  std::vector<Stash> stashes(tape.slots.size(), Stash::kKeep);
  for (const Instruction& line : tape.instructions) {
    if (line.direction != Direction::kForward || line.recomputed) continue;
    for (size_t i = 0; i < kMaxOutputs; ++i) {
      const int32_t slot = line.operands.out[i].slot;
      if (slot == kNoSlot) continue;
      Stash& stash = stashes[static_cast<size_t>(slot)];
      if (line.op == nullptr) {
        stash = Stash::kOffload;
      } else if (i >= line.op->outputs.size()) {
        stash = Stash::kTwoBit;  // Behind the op's own results.
      } else {
        stash = FormMadeBy(*line.op);
      }
    }
  }
  return stashes;
}

Replay ReplayTape(const Tape& tape) {
  Replay replay;
  replay.arena_bytes = tape.arena_bytes;
  replay.host_bytes = tape.host_bytes;
  const std::vector<LiveBytes> live = Timeline(tape);
  for (size_t t = 0; t < live.size(); ++t) {
    replay.peak_values_bytes = std::max(replay.peak_values_bytes, live[t].stash + live[t].scratch);
    if (live[t].total() <= replay.peak.total()) continue;
    replay.peak = live[t];
    replay.peak_instruction = static_cast<int32_t>(t);
  }
  replay.work = TapeWork(tape);
  return replay;
}

}  // namespace snug::program
