#include "worker/program/lowering/recovery.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "worker/program/lowering/buffers.h"

namespace snug::program {
namespace {

// Lines [first, end) of the script as it was, which begin before the line `from`.
struct Recovery {
  size_t from = 0, first = 0, end = 0;
};

class Hoister {
 public:
  explicit Hoister(Script before)
      : before_(std::move(before)),
        pass_(PassOfLines(before_)),
        loop_(before_.lines.size(), kNone),
        recovery_(before_.lines.size(), kNone) {
    FindLoops();
    FindRecoveries();
  }

  Script Hoist() {
    if (recoveries_.empty()) return std::move(before_);
    const size_t lines = before_.lines.size();
    place_.resize(lines + 1);
    begin_.resize(lines);
    end_.resize(lines);
    after_.lines.reserve(lines + 4 * recoveries_.size());
    auto begins = recoveries_.begin(), stands = recoveries_.begin();
    for (size_t t = 0; t < lines;) {
      place_[t] = Now();
      if (stands != recoveries_.end() && stands->first == t) {
        Wait(*stands);
        t = stands++->end;
        continue;
      }
      if (begins != recoveries_.end() && begins->from == t) Begin(*begins++);
      begin_[t] = end_[t] = Now();
      Move(t++);
    }
    place_[lines] = Now();
    MoveInstances();
    for (int32_t pass : before_.passes) after_.passes.push_back(place_[Index(pass)]);
    return std::move(after_);
  }

 private:
  using Kind = Instruction::Kind;

  static size_t Index(int32_t i) { return static_cast<size_t>(i); }
  int32_t Now() const { return static_cast<int32_t>(after_.lines.size()); }

  void FindLoops() {
    for (size_t t = 0; t < before_.lines.size(); ++t) {
      const Instruction& head = before_.lines[t];
      if (head.kind != Kind::kLoop) continue;
      std::fill_n(loop_.begin() + static_cast<int64_t>(t), head.loop.lines + 1,
                  static_cast<int32_t>(t));
    }
  }

  void FindRecoveries() {
    const size_t lines = before_.lines.size();
    const auto is_part = [&](size_t t) { return t < lines && before_.needs[t].may_run_ahead; };
    for (size_t t = 0; t < lines; ++t) {
      if (!is_part(t)) continue;
      Recovery recovery = {.from = t, .first = t, .end = t + 1};
      while (is_part(recovery.end) && pass_[recovery.end] == pass_[t]) ++recovery.end;
      recovery.from = EarliestBeginning(recovery);
      t = recovery.end - 1;
      if (!Computes(recovery.from, recovery.first)) continue;
      std::fill(recovery_.begin() + static_cast<int64_t>(recovery.first),
                recovery_.begin() + static_cast<int64_t>(recovery.end),
                static_cast<int32_t>(recoveries_.size()));
      recoveries_.push_back(recovery);
    }
  }

  // What a recovery needs of others.
  struct Needs {
    std::set<int32_t> instances, parameters;
  };

  Needs NeedsOf(const Recovery& recovery) const {
    Needs needs;
    for (size_t t = recovery.first; t < recovery.end; ++t) {
      for (const Operand& read : before_.lines[t].operands.in)
        if (read) needs.instances.insert(read.slot);
      for (int32_t parameter : before_.lines[t].parameters) needs.parameters.insert(parameter);
    }
    return needs;
  }

  size_t EarliestBeginning(const Recovery& recovery) const {
    const Needs needs = NeedsOf(recovery);
    const auto least = Index(before_.passes[Index(std::max(pass_[recovery.first] - 1, 0))]);
    size_t from = recovery.first;
    while (from > least) {
      const size_t before = loop_[from - 1] == kNone ? from - 1 : Index(loop_[from - 1]);
      for (size_t t = before; t < from; ++t)
        if (ComesBefore(t, needs)) return from;
      from = before;
    }
    return from;
  }

  // Whether what has these needs runs behind the line, in whatever order the others run.
  bool ComesBefore(size_t t, const Needs& needs) const {
    const Instruction& line = before_.lines[t];
    const bool of_backward = line.recomputed || line.direction == Direction::kBackward;
    // In the body of a loop that runs backward some lines are a pass's own.
    const bool own = loop_[t] != kNone && loop_[t] != static_cast<int32_t>(t);
    const bool makes_again = line.recomputed && line.kind != Kind::kCopy && !own;
    if (!of_backward || makes_again) return true;
    if (line.kind == Kind::kUpdate && needs.parameters.contains(line.parameters[0])) return true;
    const auto& fresh = before_.needs[t].fresh;
    return std::any_of(fresh.begin(), fresh.end(), [&](int32_t instance) {
      return instance != kNone && needs.instances.contains(instance);
    });
  }

  bool Computes(size_t from, size_t to) const {
    return std::any_of(before_.lines.begin() + static_cast<int64_t>(from),
                       before_.lines.begin() + static_cast<int64_t>(to),
                       [](const Instruction& line) { return line.op != nullptr; });
  }

  void Begin(const Recovery& recovery) {
    const Instruction& like = before_.lines[recovery.first];
    Push(Kind::kRecord, kMayRecover, kComputeStream, like);
    Push(Kind::kWait, kMayRecover, kRecoverStream, like);
    for (size_t t = recovery.first; t < recovery.end; ++t) {
      begin_[t] = Now();
      Move(t);
      after_.lines.back().stream = kRecoverStream;
    }
    Push(Kind::kRecord, kIsRecovered, kRecoverStream, like);
  }

  void Wait(const Recovery& recovery) {
    for (size_t t = recovery.first; t < recovery.end; ++t) end_[t] = Now();
    Push(Kind::kWait, kIsRecovered, kComputeStream, before_.lines[recovery.first]);
  }

  void Move(size_t t) {
    after_.lines.push_back(before_.lines[t]);
    after_.needs.push_back(before_.needs[t]);
  }

  // In the place of the line `like`, by which messages name it.
  void Push(Kind kind, int16_t event, uint8_t stream, const Instruction& like) {
    after_.lines.push_back(EventLine(kind, event, stream, like));
    after_.needs.emplace_back();
  }

  // What a recovery reads and nobody behind it does may be read beside it: then it lives until the
  // recovery has been waited for. Else the recovery's own lines may write over it.
  void MoveInstances() {
    after_.instances = std::move(before_.instances);
    std::vector<int32_t> beside(after_.instances.size(), kNone);  // The last recovery.
    for (size_t r = 0; r < recoveries_.size(); ++r) {
      for (size_t t = recoveries_[r].from; t < recoveries_[r].first; ++t) {
        before_.lines[t].operands.ForEach([&](const Operand& operand) {
          if (operand) beside[Index(operand.slot)] = static_cast<int32_t>(r);
        });
      }
    }
    for (size_t i = 0; i < after_.instances.size(); ++i) {
      Instance& instance = after_.instances[i];
      const size_t last = Index(instance.last);
      const bool read_beside = recovery_[last] != kNone && beside[i] == recovery_[last];
      instance.birth = begin_[Index(instance.birth)];
      instance.last = (read_beside ? end_ : begin_)[last];
    }
  }

  Script before_, after_;
  std::vector<int32_t> pass_;      // By line.
  std::vector<int32_t> loop_;      // By line: the head of the loop that it is part of.
  std::vector<int32_t> recovery_;  // By line: the recovery that it is part of.
  std::vector<Recovery> recoveries_;
  // By line as it was: where what stands in its place begins, where itself begins, where it is
  // done.
  std::vector<int32_t> place_, begin_, end_;
};

}  // namespace

Script RecoverAhead(Script script) {
  const bool any = std::any_of(script.needs.begin(), script.needs.end(),
                               [](const LineNeeds& needs) { return needs.may_run_ahead; });
  if (!any) return script;
  return Hoister(std::move(script)).Hoist();
}

}  // namespace snug::program
