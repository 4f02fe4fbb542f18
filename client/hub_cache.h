// The user's Hugging Face cache: where `hf download` puts models and datasets.
//
// Read only, and never downloaded into: Snug needs no network. The layout is huggingface_hub's:
//   HUB/models--org--name/refs/main            the commit that "main" is
//   HUB/models--org--name/snapshots/COMMIT/    the files
// and of the datasets library, which keeps what it has loaded as arrow files:
//   DATASETS/org___name/CONFIG/VERSION/HASH/   dataset_info.json and the files
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

// The folder in which the datasets library keeps a dataset that it has loaded, HF_DATASETS_CACHE or
// HF_HOME/datasets: the configuration's, or the only one's. NOT_FOUND when there is none, or more
// than one.
absl::StatusOr<std::string> FindInDatasetsCache(const std::string& id, const std::string& config);

}  // namespace snug::client

#endif  // CLIENT_HUB_CACHE_H_
