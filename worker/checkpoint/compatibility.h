// What programs that serve adapters make of one: which load it, how many of its modules they apply,
// what they need for it. From their documentation and sources as of 2026; an adapter that loads and
// does nothing, or something else than it was trained for, counts as one that does not load.
#ifndef WORKER_CHECKPOINT_COMPATIBILITY_H_
#define WORKER_CHECKPOINT_COMPATIBILITY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/files/adapter_contents.h"
#include "worker/program/lora_config.h"

namespace snug::checkpoint {

struct ReaderReport {
  std::string reader;
  bool loads = false;
  int64_t modules = 0;     // That it will apply,
  int64_t of_modules = 0;  // of so many that were trained.
  std::string notes;       // What it needs, or why it does not load it; may be empty.
};

// `model_type`: of the base's config.json.
std::vector<ReaderReport> ReadersOf(const program::LoraConfig& lora,
                                    const program::AdapterContents& contents,
                                    const std::string& model_type);

// compatibility.json, and the lines of README.md.
absl::StatusOr<std::string> CompatibilityText(const std::vector<ReaderReport>& reports);
std::string CompatibilityTable(const std::vector<ReaderReport>& reports);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_COMPATIBILITY_H_
