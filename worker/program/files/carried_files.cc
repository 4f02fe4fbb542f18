#include "worker/program/files/carried_files.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/files/regular_file.h"

namespace snug::program {
namespace {

constexpr size_t kMaxFolderNames = 10'000;  // Of all kinds.

absl::Status CheckFile(const std::string& path) {
  const absl::StatusOr<RegularFile> file = RegularFile::Open(path);
  if (absl::IsNotFound(file.status()) && !IsSomethingAt(path)) return absl::OkStatus();
  RETURN_IF_ERROR(file.status());
  if (file->size() <= kMaxCarriedBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, " has ", file->size(), " bytes; at most ", kMaxCarriedBytes));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> MoreTemplates(const std::string& model_dir) {
  const std::string folder = absl::StrCat(model_dir, "/", kMoreTemplates);
  ASSIGN_OR_RETURN(std::vector<std::string> names, NamesIn(folder, kMaxFolderNames));
  std::erase_if(names, [](const std::string& name) { return !absl::EndsWith(name, ".jinja"); });
  if (names.size() <= kMaxTemplates) return names;
  return absl::InvalidArgumentError(
      absl::StrCat(folder, ": more than ", kMaxTemplates, " templates"));
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
