#include "worker/program/tape_text.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace snug::program {
namespace {

const char* NameOf(Region region) {
  switch (region) {
    case Region::kStash:
      return "stash";
    case Region::kScratch:
      return "scratch";
    case Region::kWorkspace:
      return "workspace";
    case Region::kHost:
      return "host";
  }
  return "";
}

template <size_t kOperands>
void Append(const Tape& tape, const char* name, const std::array<Operand, kOperands>& operands,
            std::string* text) {
  for (size_t i = 0; i < kOperands; ++i) {
    if (!operands[i]) continue;
    const Slot& slot = tape.slots[static_cast<size_t>(operands[i].slot)];
    absl::StrAppend(text, " ", name, i, "=", NameOf(slot.region), "+", slot.offset);
  }
}

const char* ActionOf(const Instruction& line) {
  switch (line.kind) {
    case Instruction::Kind::kRun:
      return line.direction == Direction::kForward ? "forward" : "backward";
    case Instruction::Kind::kCopy:
      return "copy";
    case Instruction::Kind::kRecord:
      return "record";
    case Instruction::Kind::kWait:
      return "wait";
    case Instruction::Kind::kLoop:
      return "loop";
    case Instruction::Kind::kUpdate:
      return "update";
  }
  return "";
}

}  // namespace

std::string TapeText(const Tape& tape) {
  std::string text = absl::StrCat("arena of ", tape.arena_bytes, " bytes\n");
  for (size_t t = 0; t < tape.instructions.size(); ++t) {
    const Instruction& line = tape.instructions[t];
    absl::StrAppendFormat(&text, "%3d block %d %s%s", t, line.block,
                          line.recomputed ? "again " : "", ActionOf(line));
    if (line.op != nullptr) absl::StrAppend(&text, " ", line.op->name);
    if (line.event >= 0) absl::StrAppend(&text, " event ", line.event);
    if (line.stream != kComputeStream) absl::StrAppend(&text, " on stream ", line.stream);
    if (line.kind == Instruction::Kind::kLoop)
      absl::StrAppend(&text, " over the next ", line.loop.lines, " lines, ", line.loop.rows_of_pass,
                      " rows at a time");
    if (line.kind == Instruction::Kind::kUpdate)
      absl::StrAppend(&text, " parameter ", line.parameters[0]);
    absl::StrAppend(&text, ":");
    Append(tape, "in", line.operands.in, &text);
    Append(tape, "out", line.operands.out, &text);
    Append(tape, "d_out", line.operands.d_out, &text);
    Append(tape, "d_in", line.operands.d_in, &text);
    absl::StrAppend(&text, line.accumulate != 0 ? " (added)\n" : "\n");
  }
  return text;
}

}  // namespace snug::program
