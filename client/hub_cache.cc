#include "client/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace snug::client {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDataSuffixes[] = {".jsonl", ".json", ".csv", ".tsv", ".parquet", ".arrow"};
constexpr size_t kListedFiles = 8;

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

bool IsData(const fs::path& path) {
  const std::string suffix = absl::AsciiStrToLower(path.extension().string());
  // A snapshot also holds descriptions of itself.
  const bool about = absl::StartsWith(path.filename().string(), "dataset_info");
  return !about && std::find(std::begin(kDataSuffixes), std::end(kDataSuffixes), suffix) !=
                       std::end(kDataSuffixes);
}

std::vector<std::string> DataFiles(const std::string& snapshot) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(snapshot, error))
    if (entry.is_regular_file(error) && IsData(entry.path()))
      files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

bool IsHubId(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(Split(text).name, '/');
  return parts.size() == 2 && IsHubName(parts[0]) && IsHubName(parts[1]);
}

std::string HubCacheFolder() {
  if (const std::string hub = Variable("HF_HUB_CACHE"); !hub.empty()) return hub;
  if (const std::string home = Variable("HF_HOME"); !home.empty()) return home + "/hub";
  std::string cache = Variable("XDG_CACHE_HOME");
  if (cache.empty()) cache = Variable("HOME") + "/.cache";
  return cache + "/huggingface/hub";
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

absl::StatusOr<std::string> OnlyDataFile(const std::string& snapshot, const std::string& id) {
  std::vector<std::string> files = DataFiles(snapshot);
  if (files.size() == 1) return files.front();
  if (files.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "\"", id, "\" in the Hugging Face cache holds no file that can be trained on (",
        absl::StrJoin(kDataSuffixes, ", "), "): ", snapshot));
  }
  const size_t count = files.size();
  files.resize(std::min(count, kListedFiles));
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", id, "\" in the Hugging Face cache holds ", count,
      " files; name the one to train on as dataset:\n  ", absl::StrJoin(files, "\n  ")));
}

}  // namespace snug::client
