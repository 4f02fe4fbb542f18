#include "worker/program/lowering/buffers.h"

#include <algorithm>
#include <array>

namespace snug::program {
namespace {

class Sharer {
 public:
  explicit Sharer(const Script& script)
      : script_(script),
        pass_(PassOfLines(script)),
        held_until_(HeldUntil(script)),
        end_(script.instances.size()) {
    result_.of.assign(script.instances.size(), kNoSlot);
    // A sum that grows in place ends with its last share.
    for (size_t i = script.instances.size(); i-- > 0;) {
      const Instance& instance = script.instances[i];
      end_[i] = std::max(end_[i], instance.last);
      if (instance.adds_into == kNone) continue;
      int32_t& before = end_[static_cast<size_t>(instance.adds_into)];
      before = std::max(before, end_[i]);
    }
  }

  Buffers Share() {
    for (size_t t = 0; t < script_.lines.size(); ++t) {
      taken_.fill(kNoSlot);
      for (int32_t fresh : script_.needs[t].fresh) {
        if (fresh != kNone) GiveBuffer(fresh, static_cast<int32_t>(t));
      }
      if (held_until_[t] > static_cast<int32_t>(t)) Hold(t);
    }
    return std::move(result_);
  }

 private:
  const Instance& At(int32_t i) const { return script_.instances[static_cast<size_t>(i)]; }
  int32_t BufferOf(int32_t i) const { return result_.of[static_cast<size_t>(i)]; }
  const Buffer& Held(int32_t i) const { return result_.buffers[static_cast<size_t>(BufferOf(i))]; }
  int32_t PassOf(int32_t line) const { return pass_[static_cast<size_t>(line)]; }

  // With the last line that runs ahead: up to there one may write over what another has read.
  void Hold(size_t t) {
    Operands operands = script_.lines[t].operands;
    operands.ForEach([&](const Operand& operand) {
      if (operand) ahead_.push_back(BufferOf(operand.slot));
    });
    if (script_.lines[t].kind != Instruction::Kind::kRecord) return;
    for (int32_t index : ahead_) {
      Buffer& buffer = result_.buffers[static_cast<size_t>(index)];
      buffer.last = std::max(buffer.last, held_until_[t]);
    }
    ahead_.clear();
  }

  void NewBuffer(int32_t i) {
    const auto buffer = static_cast<int32_t>(result_.buffers.size());
    result_.buffers.push_back({.bytes = At(i).bytes, .first = At(i).birth, .last = At(i).last});
    Join(i, buffer);
  }

  void Join(int32_t i, int32_t index) {
    Buffer& buffer = result_.buffers[static_cast<size_t>(index)];
    result_.of[static_cast<size_t>(i)] = index;
    buffer.last = std::max(buffer.last, At(i).last);
    buffer.kept = buffer.kept || At(i).kept;
    buffer.on_host = At(i).on_host;
  }

  void GiveBuffer(int32_t fresh, int32_t t) {
    if (At(fresh).adds_into != kNone) return Join(fresh, BufferOf(At(fresh).adds_into));
    const int32_t over = BestOperand(fresh, t);
    if (over == kNone) return NewBuffer(fresh);
    *std::find(taken_.begin(), taken_.end(), kNoSlot) = BufferOf(over);
    Join(fresh, BufferOf(over));
  }

  // The operand whose buffer `fresh` may take: one that runs through blocks, else the youngest.
  int32_t BestOperand(int32_t fresh, int32_t t) const {
    int32_t best = kNone;
    ForEachCandidate(fresh, t, [&](int32_t operand) {
      if (operand == kNoSlot || !MayTake(fresh, operand, t)) return;
      if (best != kNone && CameBefore(best, t)) return;
      if (best == kNone || CameBefore(operand, t) || At(operand).birth > At(best).birth)
        best = operand;
    });
    return best;
  }

  // Whether the operand's buffer is older than the pass at hand.
  bool CameBefore(int32_t operand, int32_t t) const {
    return PassOf(Held(operand).first) < PassOf(t);
  }

  // Operands over which the op may write `fresh`, by its row of the table.
  template <typename Visit>
  void ForEachCandidate(int32_t fresh, int32_t t, const Visit& visit) const {
    const Instruction& line = script_.lines[static_cast<size_t>(t)];
    if (line.op == nullptr) return;
    const Operands& o = line.operands;
    const OpRow& row = RowOf(line.op->code);
    if (fresh == o.out[0].slot) {
      for (size_t i = 0; i < kMaxInputs; ++i) {
        if ((row.forward_in_place >> i & 1) != 0) visit(o.in[i].slot);
      }
    }
    for (size_t k = 0; k < kMaxInputs; ++k) {
      if (fresh != o.d_in[k].slot) continue;
      if ((row.backward_in_place[k] & 1) != 0) visit(o.d_out[0].slot);
      for (size_t i = 0; i < kMaxInputs; ++i) {
        if ((row.backward_in_place[k] >> (8 + i) & 1) != 0) visit(o.in[i].slot);
      }
    }
  }

  bool MayTake(int32_t fresh, int32_t operand, int32_t t) const {
    const Buffer& buffer = Held(operand);
    // What a loop has of outside it reads until its last line, each pass its own rows.
    const bool dead = At(operand).last == t && buffer.last == t;
    if (!dead || buffer.bytes != At(fresh).bytes) return false;
    if (At(operand).of_pass != At(fresh).of_pass) return false;
    if (std::find(taken_.begin(), taken_.end(), BufferOf(operand)) != taken_.end()) return false;
    // The stack holds no room for longer than the block that stashes: neither before it, as for a
    // buffer that came through blocks, nor behind it, as for a gradient that goes on through them.
    if (At(fresh).kept && CameBefore(operand, t)) return false;
    const bool goes_on = PassOf(end_[static_cast<size_t>(fresh)]) != PassOf(t);
    return !(buffer.kept && goes_on);
  }

  const Script& script_;
  const std::vector<int32_t> pass_, held_until_;  // By line.
  std::vector<int32_t> ahead_;                    // Buffers of what runs ahead at the line at hand.
  std::vector<int32_t> end_;  // By instance: the last line of it and of what adds into it.
  std::array<int32_t, kMaxInputs> taken_ = {};  // Buffers that the line at hand gave away.
  Buffers result_;
};

}  // namespace

std::vector<int32_t> HeldUntil(const Script& script) {
  std::vector<int32_t> until(script.lines.size());
  int32_t waits = kNone;  // The next line that waits for what runs ahead.
  for (size_t t = until.size(); t-- > 0;) {
    const Instruction& line = script.lines[t];
    const bool waits_here = line.kind == Instruction::Kind::kWait && line.event == kIsRecovered;
    if (waits_here) waits = static_cast<int32_t>(t);
    until[t] = line.stream == kRecoverStream ? waits : static_cast<int32_t>(t);
  }
  return until;
}

std::vector<int32_t> PassOfLines(const Script& script) {
  std::vector<int32_t> pass(script.lines.size());
  for (size_t p = 0; p + 1 < script.passes.size(); ++p) {
    std::fill(pass.begin() + script.passes[p], pass.begin() + script.passes[p + 1],
              static_cast<int32_t>(p));
  }
  return pass;
}

Buffers ShareBuffers(const Script& script) { return Sharer(script).Share(); }

}  // namespace snug::program
