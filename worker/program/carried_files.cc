#include "worker/program/carried_files.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/regular_file.h"

namespace snug::program {
namespace {

namespace fs = std::filesystem;

absl::Status CheckFile(const std::string& path) {
  const absl::StatusOr<RegularFile> file = RegularFile::Open(path);
  std::error_code ignored;
  const bool absent = absl::IsNotFound(file.status()) &&
                      fs::symlink_status(path, ignored).type() == fs::file_type::not_found;
  if (absent) return absl::OkStatus();
  RETURN_IF_ERROR(file.status());
  if (file->size() <= kMaxCarriedBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, " has ", file->size(), " bytes; at most ", kMaxCarriedBytes));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> MoreTemplates(const std::string& model_dir) {
  const std::string folder = absl::StrCat(model_dir, "/", kMoreTemplates);
  std::vector<std::string> names;
  std::error_code error;
  if (!fs::is_directory(folder, error)) return names;
  fs::directory_iterator walk(folder, error);
  for (; !error && walk != fs::directory_iterator(); walk.increment(error)) {
    if (walk->path().extension() == ".jinja") names.push_back(walk->path().filename().string());
    if (names.size() > kMaxTemplates) {
      return absl::InvalidArgumentError(
          absl::StrCat(folder, ": more than ", kMaxTemplates, " templates"));
    }
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", folder));
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status CheckCarriedFiles(const std::string& model_dir) {
  for (const char* name : kTokenizerFiles) {
    RETURN_IF_ERROR(CheckFile(absl::StrCat(model_dir, "/", name)));
  }
  for (const char* name : {kChatTemplate, kGenerationConfig}) {
    RETURN_IF_ERROR(CheckFile(absl::StrCat(model_dir, "/", name)));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> templates, MoreTemplates(model_dir));
  for (const std::string& name : templates) {
    RETURN_IF_ERROR(CheckFile(absl::StrCat(model_dir, "/", kMoreTemplates, "/", name)));
  }
  return absl::OkStatus();
}

}  // namespace snug::program
