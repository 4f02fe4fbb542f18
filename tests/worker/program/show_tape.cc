// show_tape [PATTERN=keep|recompute ...]: prints the tape of a step of full training of a Llama of
// two layers (width 64, 8 tokens) under a pinned plan: each instruction with its operands' places
// in the arena. worker/program/README.md walks through one.
#include <cstdio>
#include <iostream>
#include <map>
#include <string>

#include "tests/worker/program/models.h"
#include "worker/program/lower.h"
#include "worker/program/op_table.h"

namespace snug::program {
namespace {

std::string PlaceOf(const Tape& tape, const Operand& operand) {
  const Slot& slot = tape.slots[static_cast<size_t>(operand.slot)];
  return (slot.region == Region::kStash ? "stash+" : "scratch+") + std::to_string(slot.offset);
}

template <typename Operands>
void Print(const Tape& tape, const char* name, const Operands& operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i]) std::printf(" %s%zu=%s", name, i, PlaceOf(tape, operands[i]).c_str());
  }
}

void Print(const Tape& tape) {
  std::printf("arena of %ld bytes\n", static_cast<long>(tape.arena_bytes));
  for (size_t t = 0; t < tape.instructions.size(); ++t) {
    const Instruction& line = tape.instructions[t];
    const bool forward = line.direction == Direction::kForward;
    std::printf("%3zu block %d %s%s %s:", t, line.block, line.recomputed ? "again " : "",
                forward ? "forward" : "backward", line.op->name.c_str());
    Print(tape, "in", line.operands.in);
    Print(tape, "out", line.operands.out);
    Print(tape, "d_out", line.operands.d_out);
    Print(tape, "d_in", line.operands.d_in);
    if (line.accumulate != 0) std::printf(" (added)");
    std::printf("\n");
  }
}

int Main(int argc, char** argv) {
  std::map<std::string, Stash> patterns;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.rfind('=');
    const std::string kind = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (kind != "keep" && kind != "recompute") {
      std::cerr << argument << ": give PATTERN=keep or PATTERN=recompute\n";
      return 64;
    }
    patterns[argument.substr(0, equals)] = kind == "keep" ? Stash::kKeep : Stash::kRecompute;
  }
  const auto program = BuildProgram(LlamaShape({2, 64, 4, 2, 96, 50}), FullMode());
  const auto plan = PinnedPlan(*program, patterns);
  if (!plan.ok()) {
    std::cerr << plan.status().message() << "\n";
    return 1;
  }
  Print(*Lower(*program, *plan, {.key = {.tokens = 8, .documents = 1, .longest_document = 8}}));
  return 0;
}

}  // namespace
}  // namespace snug::program

int main(int argc, char** argv) { return snug::program::Main(argc, argv); }
