#include "worker/program/replay.h"

#include <algorithm>

namespace snug::program {
namespace {

// A copy between a GPU and the host has a sixtieth of the memory's rate (PCIe 5 beside HBM 3).
constexpr double kCopyShare = 1.0 / 60.0;

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
  for (const Instruction& line : tape.instructions) {
    total.flops += line.work.flops;
    total.bytes += line.work.bytes;
    total.copied_bytes += line.work.copied_bytes;
  }
  return total;
}

}  // namespace

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

double SecondsOf(const Work& work, const Rates& rates) {
  return work.flops / rates.flops_per_s + work.bytes / rates.bytes_per_s +
         work.copied_bytes / (kCopyShare * rates.bytes_per_s);
}

}  // namespace snug::program
