// Prompts to answer at evaluations, as snug_prompts.py wrote them: token ids, stop tokens, and what
// each token stands for in text, for this program has no tokenizer.
#ifndef WORKER_TRAIN_PROMPTS_H_
#define WORKER_TRAIN_PROMPTS_H_

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace snug::train {

struct Prompt {
  std::string text;
  std::vector<int32_t> ids;
};

class Prompts {
 public:
  // Every id lies below `vocabulary`. Errors name the file and what is wrong in it.
  static absl::StatusOr<Prompts> Read(const std::string& path, int64_t vocabulary);

  const std::vector<Prompt>& prompts() const { return prompts_; }
  int64_t longest() const;  // Tokens.
  bool Stops(int32_t id) const { return stop_ids_.contains(id); }
  // The tokens' bytes one behind another; not always UTF-8: an answer can end within a character.
  // Of tokens that a text `begins` with, less the space before its first word where the tokenizer
  // writes none.
  std::string TextOf(std::span<const int32_t> ids, bool begins) const;

 private:
  std::vector<Prompt> prompts_;
  std::set<int32_t> stop_ids_;
  std::string bytes_;  // Of all tokens.
  bool drops_space_ = false;
  std::vector<uint32_t> begin_;  // (V + 1) where in bytes_ each token's begin.
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_PROMPTS_H_
