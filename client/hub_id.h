// Ids of models on the Hugging Face hub: org/name.
#ifndef CLIENT_HUB_ID_H_
#define CLIENT_HUB_ID_H_

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace snug::client {

// As huggingface_hub's validate_repo_id has it, with both parts: each of 1 to 96 letters, digits,
// '-', '_' and '.', neither of the last two dots or dashes at its ends, no "--", no "..", and no
// ".git" at the end. `what` is the option that is named when it is not so.
absl::Status CheckRepoId(const std::string& what, const std::string& id);

// Of a model's folder that is a snapshot in a Hugging Face cache, what the hub calls the model. A
// folder of the user's own has no such name.
std::optional<std::string> HubIdOfFolder(const std::string& folder);

}  // namespace snug::client

#endif  // CLIENT_HUB_ID_H_
