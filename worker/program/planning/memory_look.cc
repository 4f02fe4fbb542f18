#include "worker/program/planning/memory_look.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace snug::program {
namespace {

constexpr int64_t kLookMiB = 1 << 20;
constexpr int64_t kSmallDifference = 64 * kLookMiB, kSmallShare = 100;  // A hundredth.

int64_t Beyond(const MemoryLook& look) { return look.seen_bytes - look.counted_bytes; }

std::string InMiB(int64_t bytes) { return absl::StrCat(bytes / kLookMiB, " MiB"); }

std::string GrownBy(const MemoryLook& look) {
  if (look.steps == 0) return "before its first step: its context, libraries, kernels";
  if (look.steps == 1) return "in its first step: kernels, workspaces of libraries";
  return absl::StrCat("up to its step ", look.steps, ": what steps leave behind");
}

// When most of the difference came about, of which the worker itself has not seen `unseen`.
std::string LargestPart(const std::vector<MemoryLook>& looks, int64_t unseen) {
  int64_t most = unseen, before = 0;
  std::string part = absl::StrCat("in its context, or behind its step ", looks.back().steps);
  for (const MemoryLook& look : looks) {
    const int64_t grown = Beyond(look) - before;
    before = Beyond(look);
    if (grown < most) continue;
    most = grown;
    part = GrownBy(look);
  }
  return part;
}

}  // namespace

bool IsLookDue(int64_t steps) {
  return std::find(std::begin(kLooksBehind), std::end(kLooksBehind), steps) !=
         std::end(kLooksBehind);
}

Uncounted UncountedOf(int64_t predicted_bytes, const std::vector<MemoryLook>& looks,
                      int64_t process_bytes) {
  const MemoryLook& last = looks.back();
  const int64_t expected = std::max(predicted_bytes, last.counted_bytes);
  const int64_t seen = process_bytes > 0 ? process_bytes : last.seen_bytes;
  if (seen == 0) return {};
  Uncounted uncounted = {.bytes = seen - expected, .warning = ""};
  if (uncounted.bytes <= std::max(kSmallDifference, expected / kSmallShare)) return uncounted;
  uncounted.warning =
      absl::StrCat("its process has ", InMiB(uncounted.bytes), " of the device beyond the ",
                   InMiB(expected), " that were counted");
  if (last.seen_bytes <= seen)  // Else neighbours are in the looks.
    absl::StrAppend(&uncounted.warning, ", most of it ",
                    LargestPart(looks, seen - last.seen_bytes));
  return uncounted;
}

}  // namespace snug::program
