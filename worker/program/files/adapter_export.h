// adapter_config.json as it is exported, and whether it leads back to what was trained: known from
// the job and the model's config.json alone, so that a job is refused before it trains.
#ifndef WORKER_PROGRAM_FILES_ADAPTER_EXPORT_H_
#define WORKER_PROGRAM_FILES_ADAPTER_EXPORT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/program/files/adapter_config.h"
#include "worker/program/files/adapter_contents.h"
#include "worker/program/lora_config.h"
#include "worker/program/program.h"

namespace snug::program {

inline constexpr char kPeftVersion[] = "0.21.2";  // Whose format is written.

// Every field that this peft writes, in its order. `base_model`: its folder, or a name of its own
// (BaseModelOf). `model`: the base with the task's head.
absl::StatusOr<std::string> AdapterConfigText(const LoraConfig& lora, const std::string& base_model,
                                              const AdapterContents& contents,
                                              const ModelConfig& model);

// An adapter that PEFT would load and not apply, wholly or in part, or with another scale, must not
// leave the house: its config alone must lead to the very adapter that was trained. `path` names
// it in errors, which are FailedPrecondition.
absl::Status CheckAdapterConfig(const AdapterConfig& config, const std::string& path,
                                const Program& program);

// What would be exported of `program`, whose adapter is `lora`, can be written and leads back to
// it.
absl::Status CheckAdapterExport(const Program& program, const LoraConfig& lora,
                                const std::string& base_model);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_FILES_ADAPTER_EXPORT_H_
