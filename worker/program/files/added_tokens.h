// Tokens that a job adds to a model's tokenizer: the ids that these get, and the rows of the
// embedding and of the head that they need. Of tokenizer.json and tokenizer_config.json nothing is
// read but which tokens there are; snug-prepare adds the new ones and sees to it that each is one
// id.
#ifndef WORKER_PROGRAM_FILES_ADDED_TOKENS_H_
#define WORKER_PROGRAM_FILES_ADDED_TOKENS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/program/model_config.h"

namespace snug::program {

// Makes room for `tokens` in `config`, which is that of `model_dir`: their ids follow those of the
// tokenizer, and where the matrices have no such rows they grow. (Many models have more rows than
// their tokenizer has tokens; those are used first, as with transformers' add_tokens.) No tokens:
// nothing is read and nothing changes. Errors begin with "added_tokens: ": no readable tokenizer, a
// token that it has already.
absl::Status AddTokens(const std::string& model_dir, const std::vector<std::string>& tokens,
                       ModelConfig& config);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_FILES_ADDED_TOKENS_H_
