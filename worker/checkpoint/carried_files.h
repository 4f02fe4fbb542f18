// What a user's reader needs beside the weights and training does not change: the tokenizer and
// chat template of the base, carried along byte for byte.
#ifndef WORKER_CHECKPOINT_CARRIED_FILES_H_
#define WORKER_CHECKPOINT_CARRIED_FILES_H_

#include <string>

#include "absl/status/status.h"

namespace snug::checkpoint {

// Those that `model_dir` has. A chat template or a tokenizer in `data_dir`, where the prepared
// dataset lies, is the one that the job was trained with and comes before the base's; may be empty.
absl::Status CopyTokenizerFiles(const std::string& model_dir, const std::string& data_dir,
                                const std::string& folder);

// Of one file by its name; absent is fine.
absl::Status CopyIfPresent(const std::string& model_dir, const std::string& folder,
                           const std::string& name);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_CARRIED_FILES_H_
