#include "server/data/sources.h"

#include <fnmatch.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "proto/snug/enum_words.h"
#include "proto/snug/status_macros.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPattern = "*?[";

Source One(const std::string& path, const std::string& split, const v1::JobSpec& spec,
           std::string field) {
  Source source{.spec = {}, .field = std::move(field)};
  source.spec.set_path(path);
  source.spec.set_split(split);
  source.spec.set_config(spec.dataset_config());
  *source.spec.mutable_columns() = spec.columns();
  source.spec.set_dataset_format(spec.dataset_format());
  return source;
}

// A name that exists is that name, whatever its letters mean in a pattern, and so is one that leads
// out of the owner's roots.
bool IsPattern(const std::string& path, const Reach& reach) {
  if (path.find_first_of(kPattern) == std::string::npos) return false;
  const absl::Status there = StatFor(path, reach).status();
  return !there.ok() && !absl::IsUnimplemented(there);
}

// A star in a folder's place would be tried on every link, wherever it leads.
absl::Status CheckPattern(const std::string& pattern, const Reach& reach) {
  const size_t slash = pattern.rfind('/');
  if (!reach.roots || (slash != std::string::npos && pattern.find_first_of(kPattern) > slash))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      pattern, ": *, ? and [ may stand in the last part of a pattern alone (but for the ",
      "daemon's own user)"));
}

absl::Status CheckMatches(const std::string& pattern, size_t count) {
  if (count == 0) return absl::NotFoundError(absl::StrCat("no file is called ", pattern));
  if (count <= kMaxSourceFiles) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(count, " files are called ", pattern, "; at most ", kMaxSourceFiles));
}

absl::StatusOr<std::vector<std::string>> Matches(const std::string& pattern) {
  glob_t found{};
  const absl::Cleanup release = [&] { globfree(&found); };
  const int code = glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  if (code != 0 && code != GLOB_NOMATCH)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot look for ", pattern));
  RETURN_IF_ERROR(CheckMatches(pattern, found.gl_pathc));
  return std::vector<std::string>(found.gl_pathv, found.gl_pathv + found.gl_pathc);
}

// The same by the names in its folder, for one with roots.
absl::StatusOr<std::vector<std::string>> MatchesFor(const std::string& pattern,
                                                    const Reach& reach) {
  RETURN_IF_ERROR(CheckPattern(pattern, reach));
  const std::string folder = FixedFolder(pattern);
  const std::string last = pattern.substr(pattern.rfind('/') + 1);
  ASSIGN_OR_RETURN(const std::vector<FolderEntry> entries, ListFor(folder, reach));
  std::vector<std::string> found;
  for (const FolderEntry& entry : entries)
    if (fnmatch(last.c_str(), entry.name.c_str(), FNM_PERIOD) == 0)
      found.push_back((fs::path(folder) / entry.name).string());
  RETURN_IF_ERROR(CheckMatches(pattern, found.size()));
  std::sort(found.begin(), found.end());
  return found;
}

absl::Status CheckPath(const std::string& path, const Reach& reach) {
  ASSIGN_OR_RETURN(const struct stat status, StatFor(path, reach));
  const bool is_folder = S_ISDIR(status.st_mode);
  if (!is_folder && !S_ISREG(status.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path, " is neither a file nor a folder"));
  if (!is_folder && status.st_size == 0)
    return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  if (!reach.roots && access(path.c_str(), is_folder ? R_OK | X_OK : R_OK) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  return absl::OkStatus();
}

bool IsFolder(const std::string& path, const Reach& reach) {
  const absl::StatusOr<struct stat> about = StatFor(path, reach);
  return about.ok() && S_ISDIR(about->st_mode);
}

// One that leads to nothing is none, nor is one to a folder.
bool IsLinkToFile(const std::string& path, const Reach& reach) {
  const absl::StatusOr<struct stat> about = StatFor(path, reach);
  return about.ok() ? S_ISREG(about->st_mode) : !absl::IsNotFound(about.status());
}

absl::Status TooManyIn(const std::string& folder) {
  return absl::InvalidArgumentError(
      absl::StrCat(folder, " holds more than ", kMaxSourceFiles, " files"));
}

absl::StatusOr<std::vector<SourceFile>> FilesIn(const std::string& folder) {
  std::error_code error;
  std::vector<SourceFile> found;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (!at->is_regular_file(error)) continue;
    found.push_back({at->path().string(), fs::relative(at->path(), folder, error).string()});
    if (found.size() > kMaxSourceFiles) return TooManyIn(folder);
  }
  if (error)
    return absl::InvalidArgumentError(absl::StrCat("cannot list ", folder, ": ", error.message()));
  return found;
}

// The same for one with roots: each folder in it is opened for him.
absl::StatusOr<std::vector<SourceFile>> FilesFor(const std::string& folder, const Reach& reach) {
  std::vector<SourceFile> found;
  std::vector<SourceFile> folders = {{folder, ""}};  // Their names end with slashes.
  for (size_t next = 0; next < folders.size(); ++next) {
    const SourceFile at = folders[next];
    ASSIGN_OR_RETURN(const std::vector<FolderEntry> entries, ListFor(at.path, reach));
    for (const FolderEntry& entry : entries) {
      const SourceFile one = {(fs::path(at.path) / entry.name).string(), at.name + entry.name};
      if (entry.type == fs::file_type::directory) folders.push_back({one.path, one.name + "/"});
      const bool is_link = entry.type == fs::file_type::symlink;
      if (entry.type == fs::file_type::regular || (is_link && IsLinkToFile(one.path, reach)))
        found.push_back(one);
      if (std::max(found.size(), folders.size()) > kMaxSourceFiles) return TooManyIn(folder);
    }
  }
  return found;
}

absl::Status AddFolder(const std::string& folder, const Reach& reach,
                       std::vector<SourceFile>& files) {
  ASSIGN_OR_RETURN(std::vector<SourceFile> found,
                   reach.roots ? FilesFor(folder, reach) : FilesIn(folder));
  if (found.empty()) return absl::InvalidArgumentError(absl::StrCat(folder, " holds no file"));
  std::sort(found.begin(), found.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.name < b.name; });
  std::move(found.begin(), found.end(), std::back_inserter(files));
  return absl::OkStatus();
}

std::string FormatName(v1::JobSpec::DatasetFormat format) {
  if (format == v1::JobSpec::DATASET_FORMAT_UNSPECIFIED) return "";
  return LowerEnumWord(format);
}

// In one order: a map of protobuf has none.
std::map<std::string, std::string> Columns(const v1::DatasetSource& source) {
  return {source.columns().begin(), source.columns().end()};
}

double Weight(const v1::DatasetSource& source) {
  return source.has_weight() ? source.weight() : 1.0;
}

nlohmann::json JsonOf(const Source& source) {
  return {{"name", source.spec.path()},
          {"field", source.field},
          {"paths", source.paths},
          {"split", source.spec.split()},
          {"config", source.spec.config()},
          {"columns", Columns(source.spec)},
          {"weight", Weight(source.spec)},
          {"max_samples", source.spec.max_samples()},
          {"format", FormatName(source.spec.dataset_format())}};
}

}  // namespace

std::vector<Source> TrainSources(const v1::JobSpec& spec) {
  std::vector<Source> sources;
  if (spec.datasets().empty()) {
    sources.push_back(One(spec.dataset(), spec.dataset_split(), spec, "dataset"));
    sources.back().spec.set_max_samples(spec.max_samples());
  }
  for (int i = 0; i < spec.datasets_size(); ++i)
    sources.push_back({.spec = spec.datasets(i), .field = absl::StrCat("datasets[", i, "]")});
  return sources;
}

std::vector<Source> EvalSources(const v1::JobSpec& spec) {
  if (!spec.eval_dataset().empty())
    return {One(spec.eval_dataset(), spec.eval_dataset_split(), spec, "eval_dataset")};
  if (spec.eval_dataset_split().empty()) return {};
  return {One(spec.dataset(), spec.eval_dataset_split(), spec, "dataset")};
}

absl::Status FindPaths(Source& source, const Reach& reach) {
  const std::string& named = source.spec.path();
  source.paths = {named};
  if (IsPattern(named, reach)) {
    ASSIGN_OR_RETURN(source.paths, reach.roots ? MatchesFor(named, reach) : Matches(named));
  }
  for (const std::string& path : source.paths) RETURN_IF_ERROR(CheckPath(path, reach));
  return absl::OkStatus();
}

std::string FixedFolder(const std::string& path) {
  const size_t star = path.find_first_of(kPattern);
  if (star == std::string::npos) return path;
  const size_t slash = path.rfind('/', star);
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

absl::Status CheckSource(Source source, const Reach& reach) { return FindPaths(source, reach); }

absl::Status CheckNamed(Source source, const Reach& reach) {
  const std::string& path = source.spec.path();
  if (!IsPattern(path, reach)) return CheckPath(path, reach);
  RETURN_IF_ERROR(CheckPattern(path, reach));
  return CheckPath(FixedFolder(path), reach);
}

absl::StatusOr<std::vector<SourceFile>> FilesOf(const Source& source, const Reach& reach) {
  std::vector<SourceFile> files;
  for (const std::string& path : source.paths) {
    if (IsFolder(path, reach)) {
      RETURN_IF_ERROR(AddFolder(path, reach, files));
    } else {
      // A file alone is what it holds and its endings, so that copies are prepared once.
      const fs::path name = fs::path(path).filename();
      const bool alone = source.paths.size() == 1;
      const std::string endings = name.stem().extension().string() + name.extension().string();
      files.push_back({path, alone ? endings : name.string()});
    }
  }
  return files;
}

std::vector<SourceFile> DatasetFiles(const v1::JobSpec& spec, const Reach& reach) {
  std::vector<SourceFile> all;
  for (const auto& sources : {TrainSources(spec), EvalSources(spec)}) {
    for (Source source : sources) {
      if (!FindPaths(source, reach).ok()) continue;
      const absl::StatusOr<std::vector<SourceFile>> files = FilesOf(source, reach);
      if (files.ok()) all.insert(all.end(), files->begin(), files->end());
    }
  }
  return all;
}

std::string OptionsKey(const Source& source) {
  nlohmann::json said = JsonOf(source);
  for (const char* place : {"name", "field", "paths"}) said.erase(place);
  return said.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string SourcesKey(const v1::JobSpec& spec) {
  std::string key;
  for (const auto& sources : {TrainSources(spec), EvalSources(spec)}) {
    for (const Source& source : sources)
      absl::StrAppend(&key, source.field, "|", source.spec.path().size(), ":", source.spec.path(),
                      "|", OptionsKey(source), "\n");
  }
  return key;
}

absl::Status WriteSources(const std::vector<Source>& sources, const std::string& path) {
  nlohmann::json list = nlohmann::json::array();
  for (const Source& source : sources) list.push_back(JsonOf(source));
  std::ofstream file(path);
  file << list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  file.close();
  return file ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("cannot write ", path));
}

}  // namespace snug::server
