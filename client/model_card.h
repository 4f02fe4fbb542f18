// The README.md with which a job's output goes to the Hugging Face hub.
#ifndef CLIENT_MODEL_CARD_H_
#define CLIENT_MODEL_CARD_H_

#include <string>

#include "absl/status/statusor.h"
#include "snug/v1/job.pb.h"

namespace snug::client {

// `repo`: org/name. It names the base by its id on the hub, and a base without one not at all: a
// path would be of no use to others, and is nobody's business.
std::string ModelCard(const v1::Job& job, const std::string& repo);

// adapter_config.json without the base's path, which PEFT takes for an id on the hub.
absl::StatusOr<std::string> WithoutBasePath(const std::string& adapter_config);

}  // namespace snug::client

#endif  // CLIENT_MODEL_CARD_H_
