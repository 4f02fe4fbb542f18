// README.md of a PEFT adapter folder, with the front matter that the Hugging Face hub reads. Its
// adapter_config.json is program::AdapterConfigText.
#ifndef WORKER_CHECKPOINT_ADAPTER_CARD_H_
#define WORKER_CHECKPOINT_ADAPTER_CARD_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/compatibility.h"
#include "worker/checkpoint/export.h"
#include "worker/program/files/adapter_contents.h"

namespace snug::checkpoint {

absl::StatusOr<program::AdapterContents> ContentsOf(const std::vector<TensorBytes>& adapter);

absl::StatusOr<std::string> AdapterReadmeText(const ExportOptions& options,
                                              const program::AdapterContents& contents,
                                              const std::vector<ReaderReport>& readers);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_ADAPTER_CARD_H_
