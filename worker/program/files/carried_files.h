// What of a model's folder goes along with what was trained, byte for byte: the tokenizer and its
// chat templates, or how images are read. Names and limits; worker/checkpoint copies them.
#ifndef WORKER_PROGRAM_FILES_CARRIED_FILES_H_
#define WORKER_PROGRAM_FILES_CARRIED_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace snug::program {

// What transformers and tokenizers write, over the families that have a tokenizer.json.
inline constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                                  "tokenizer_config.json",
                                                  "special_tokens_map.json",
                                                  "added_tokens.json",
                                                  "vocab.json",
                                                  "merges.txt",
                                                  "vocab.txt",
                                                  "tokenizer.model",
                                                  "spiece.model",
                                                  "chat_template.json",
                                                  "sentencepiece.bpe.model",
                                                  "preprocessor_config.json"};
inline constexpr char kChatTemplate[] = "chat_template.jinja";
inline constexpr char kMoreTemplates[] = "additional_chat_templates";
inline constexpr char kGenerationConfig[] = "generation_config.json";

inline constexpr int kMaxTemplates = 100;  // Models have two or three.
// Four times the largest tokenizer.json seen (of a vocabulary of 262,000: 33 MB), rounded up.
inline constexpr int64_t kMaxCarriedBytes = int64_t{256} << 20;

// Names of the templates in the folder kMoreTemplates; none where there is no such folder.
absl::StatusOr<std::vector<std::string>> MoreTemplates(const std::string& model_dir);

// Each of these is absent or a file that can be read and is not too long: known before a job
// trains, so that its export does not fail of it. A link to nothing is not absent.
absl::Status CheckCarriedFiles(const std::string& model_dir);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_FILES_CARRIED_FILES_H_
