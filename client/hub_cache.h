// The user's Hugging Face cache: where `hf download` puts models and datasets.
//
// Read only, and never downloaded into: Snug needs no network. The layout is huggingface_hub's:
//   HUB/models--org--name/refs/main            the commit that "main" is
//   HUB/models--org--name/snapshots/COMMIT/    the files
#ifndef CLIENT_HUB_CACHE_H_
#define CLIENT_HUB_CACHE_H_

#include <string>

#include "absl/status/statusor.h"

namespace snug::client {

enum class HubKind { kModel, kDataset };

// Whether the text is spelled org/name, or org/name@revision.
bool IsHubId(const std::string& text);

// The cache's folder: HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, ~/.cache/....
std::string HubCacheFolder();

// The snapshot's folder. NOT_FOUND names where was looked and the command that downloads it.
absl::StatusOr<std::string> FindInHubCache(const std::string& id, HubKind kind);

// The one file of a dataset's snapshot that can be trained on; where there are several, an error
// that lists them. `id` is for the message.
absl::StatusOr<std::string> OnlyDataFile(const std::string& snapshot, const std::string& id);

}  // namespace snug::client

#endif  // CLIENT_HUB_CACHE_H_
