#include "server/plan/tape_view.h"

#include <map>
#include <numeric>

#include "proto/snug/status_macros.h"
#include "server/plan/plan_proto.h"
#include "worker/program/lower.h"
#include "worker/program/planning/named_plan.h"
#include "worker/program/replay.h"

namespace snug::server {
namespace {

v1::LiveBytes ToProto(const program::LiveBytes& live, const program::Instruction& line) {
  v1::LiveBytes out;
  out.set_stash_bytes(live.stash);
  out.set_scratch_bytes(live.scratch);
  out.set_workspace_bytes(live.workspace);
  out.set_host_bytes(live.host);
  // What is run again is run for a backward.
  out.set_backward(line.direction == program::Direction::kBackward || line.recomputed);
  out.set_recomputed(line.recomputed);
  return out;
}

// Of forms on the device, by kind: bytes by instruction.
std::map<program::Stash, std::vector<int64_t>> FormsOf(const program::Tape& tape) {
  const std::vector<program::Stash> stashes = program::StashesOfSlots(tape);
  std::map<program::Stash, std::vector<int64_t>> forms;
  for (size_t s = 0; s < tape.slots.size(); ++s) {
    const program::Slot& slot = tape.slots[s];
    if (slot.region != program::Region::kStash || stashes[s] == program::Stash::kKeep) continue;
    std::vector<int64_t>& bytes = forms[stashes[s]];
    bytes.resize(tape.instructions.size() + 1);
    bytes[static_cast<size_t>(slot.first)] += slot.bytes;
    bytes[static_cast<size_t>(slot.last) + 1] -= slot.bytes;
  }
  for (auto& [stash, bytes] : forms) std::partial_sum(bytes.begin(), bytes.end(), bytes.begin());
  return forms;
}

int64_t TotalOf(const v1::LiveBytes& live) {
  return live.stash_bytes() + live.scratch_bytes() + live.workspace_bytes();
}

}  // namespace

absl::StatusOr<program::Tape> TapeOf(const program::Program& program,
                                     const program::PredictOptions& options, const v1::Plan& plan) {
  ASSIGN_OR_RETURN(const program::NamedPlan named, FromProto(plan));
  ASSIGN_OR_RETURN(const program::Plan by_position, program::PlanOf(program, named));
  program::LowerOptions lower = options.lower;
  lower.head_rows = plan.head_rows();
  return program::Lower(program, by_position, lower);
}

std::vector<v1::LiveBytes> TimelineOf(const program::Tape& tape, size_t most) {
  const std::vector<program::LiveBytes> live = program::Timeline(tape);
  const std::map<program::Stash, std::vector<int64_t>> forms = FormsOf(tape);
  const size_t stretch = (live.size() + most - 1) / most;
  std::vector<v1::LiveBytes> timeline;
  size_t held = 0;  // Instructions in the last stretch.
  for (size_t t = 0; t < live.size(); ++t) {
    v1::LiveBytes now = ToProto(live[t], tape.instructions[t]);
    for (const auto& [stash, bytes] : forms)
      if (bytes[t] > 0) (*now.mutable_form_bytes())[program::RowOf(stash).name] = bytes[t];
    const bool begins =
        timeline.empty() || held == stretch || timeline.back().backward() != now.backward();
    if (begins) {
      timeline.push_back(now);
      held = 0;
    } else if (TotalOf(now) > TotalOf(timeline.back())) {
      timeline.back() = now;
    }
    ++held;
  }
  return timeline;
}

}  // namespace snug::server
