#include "client/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace snug::client {
namespace {

namespace fs = std::filesystem;

constexpr int kDatasetsCacheDepth = 3;  // Of files: behind configuration, version and hash.

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Names on the hub: letters, digits, '-', '_', '.'; "." and ".." begin a path.
bool IsHubName(absl::string_view name) {
  if (name.empty() || name.front() == '.') return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
  });
}

struct HubId {
  std::string name;      // org/name
  std::string revision;  // A branch, a tag or a commit.
};

HubId Split(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('@', 1));
  return {parts[0], parts.size() > 1 ? parts[1] : "main"};
}

absl::Status Missing(const HubId& id, HubKind kind, const std::string& looked_in) {
  const std::string type = kind == HubKind::kDataset ? " --repo-type dataset" : "";
  const std::string revision = id.revision == "main" ? "" : " --revision " + id.revision;
  return absl::NotFoundError(absl::StrCat(
      "\"", id.name, "\" is neither a path here nor in the Hugging Face cache, which has no ",
      looked_in, "\n  Download it:      hf download ", id.name, type, revision));
}

// HF_HOME or its default.
std::string HuggingFaceFolder() {
  if (std::string home = Variable("HF_HOME"); !home.empty()) return home;
  std::string cache = Variable("XDG_CACHE_HOME");
  if (cache.empty()) cache = Variable("HOME") + "/.cache";
  return cache + "/huggingface";
}

// Folders with a dataset_info.json below a dataset's folder, or a configuration's.
std::vector<std::string> LoadedFolders(const fs::path& config) {
  std::vector<std::string> folders;
  std::error_code error;
  for (fs::recursive_directory_iterator at(config, error), end; !error && at != end;
       at.increment(error)) {
    if (at.depth() == kDatasetsCacheDepth) at.disable_recursion_pending();
    if (at->path().filename() == "dataset_info.json")
      folders.push_back(at->path().parent_path().string());
  }
  return folders;
}

}  // namespace

bool IsHubId(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(Split(text).name, '/');
  return parts.size() == 2 && IsHubName(parts[0]) && IsHubName(parts[1]);
}

std::string HubCacheFolder() {
  const std::string hub = Variable("HF_HUB_CACHE");
  return hub.empty() ? HuggingFaceFolder() + "/hub" : hub;
}

absl::StatusOr<std::string> FindInHubCache(const std::string& text, HubKind kind) {
  const HubId id = Split(text);
  const std::string folder =
      absl::StrCat(HubCacheFolder(), kind == HubKind::kDataset ? "/datasets--" : "/models--",
                   absl::StrReplaceAll(id.name, {{"/", "--"}}));
  std::error_code error;
  if (!fs::is_directory(folder, error)) return Missing(id, kind, folder);
  std::string commit = id.revision;
  if (std::ifstream ref(absl::StrCat(folder, "/refs/", id.revision)); ref) {
    std::getline(ref, commit);
    absl::StripAsciiWhitespace(&commit);
  }
  const std::string snapshot = absl::StrCat(folder, "/snapshots/", commit);
  if (!fs::is_directory(snapshot, error)) return Missing(id, kind, snapshot);
  return snapshot;
}

absl::StatusOr<std::string> FindInDatasetsCache(const std::string& text,
                                                const std::string& config) {
  const HubId id = Split(text);
  std::string cache = Variable("HF_DATASETS_CACHE");
  if (cache.empty()) cache = HuggingFaceFolder() + "/datasets";
  const fs::path folder = fs::path(cache) / absl::StrReplaceAll(id.name, {{"/", "___"}});
  const std::vector<std::string> found = LoadedFolders(folder / config);
  if (found.size() == 1) return found.front();
  return absl::NotFoundError(
      absl::StrCat(folder.string(), " holds ", found.size(), " loaded datasets; one is needed"));
}

}  // namespace snug::client
