#include "worker/checkpoint/carried_files.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/new_file.h"
#include "worker/checkpoint/read_file.h"
#include "worker/program/files/carried_files.h"
#include "worker/program/files/regular_file.h"

namespace snug::checkpoint {

namespace fs = std::filesystem;

absl::Status CopyIfPresent(const std::string& model_dir, const std::string& folder,
                           const std::string& name) {
  const std::string from = absl::StrCat(model_dir, "/", name);
  const absl::Status status =
      CopyFile(from, absl::StrCat(folder, "/", name), program::kMaxCarriedBytes);
  // A link to nothing is not absent: something was meant to be there.
  if (absl::IsNotFound(status) && !program::IsSomethingAt(from)) return absl::OkStatus();
  return status;
}

absl::Status CopyTokenizerFiles(const std::string& model_dir, const std::string& data_dir,
                                const std::string& folder) {
  const auto source = [&](const char* name) {
    std::error_code ignored;
    return !data_dir.empty() && fs::exists(data_dir + "/" + name, ignored) ? data_dir : model_dir;
  };
  for (const char* name : program::kTokenizerFiles) {
    RETURN_IF_ERROR(CopyIfPresent(source(name), folder, name));
  }
  RETURN_IF_ERROR(CopyIfPresent(source(program::kChatTemplate), folder, program::kChatTemplate));
  ASSIGN_OR_RETURN(const std::vector<std::string> templates, program::MoreTemplates(model_dir));
  const std::string from = absl::StrCat(model_dir, "/", program::kMoreTemplates);
  std::error_code ignored;
  if (!fs::is_directory(from, ignored)) return absl::OkStatus();
  const std::string copies = absl::StrCat(folder, "/", program::kMoreTemplates);
  RETURN_IF_ERROR(MakeFreshFolder(copies));
  for (const std::string& name : templates) RETURN_IF_ERROR(CopyIfPresent(from, copies, name));
  return SyncFolder(copies);
}

}  // namespace snug::checkpoint
