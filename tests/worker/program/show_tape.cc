// show_tape [PATTERN=keep|recompute ...]: prints the tape of a step of full training of a Llama of
// two layers (width 64, 8 tokens) under a pinned plan: each instruction with its operands' places
// in the arena. worker/program/README.md walks through one.
#include <iostream>
#include <map>
#include <string>

#include "tests/worker/program/models.h"
#include "worker/program/lower.h"
#include "worker/program/tape_text.h"

namespace snug::program {
namespace {

int Main(int argc, char** argv) {
  std::map<std::string, SiteStash> patterns;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.rfind('=');
    const std::string kind = equals == std::string::npos ? "" : argument.substr(equals + 1);
    const auto stash = StashOfName(kind);
    if (!stash.has_value()) {
      std::cerr << argument << ": give PATTERN=KIND, by the names of memory.stash\n";
      return 64;
    }
    patterns[argument.substr(0, equals)] = *stash;
  }
  const auto program = BuildProgram(LlamaShape({2, 64, 4, 2, 96, 50}), FullMode());
  const auto plan = PinnedPlan(*program, patterns);
  if (!plan.ok()) {
    std::cerr << plan.status().message() << "\n";
    return 1;
  }
  const auto tape =
      Lower(*program, *plan, {.key = {.tokens = 8, .documents = 1, .longest_document = 8}});
  std::cout << TapeText(*tape);
  return 0;
}

}  // namespace
}  // namespace snug::program

int main(int argc, char** argv) { return snug::program::Main(argc, argv); }
