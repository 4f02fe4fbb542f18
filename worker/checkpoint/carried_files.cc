#include "worker/checkpoint/carried_files.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/new_file.h"
#include "worker/checkpoint/read_file.h"

namespace snug::checkpoint {
namespace {

namespace fs = std::filesystem;

// What transformers and tokenizers write, over the families that have a tokenizer.json.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "vocab.txt",
                                           "tokenizer.model",
                                           "spiece.model",
                                           "chat_template.json",
                                           "sentencepiece.bpe.model"};
constexpr char kChatTemplate[] = "chat_template.jinja";
constexpr char kMoreTemplates[] = "additional_chat_templates";
constexpr int kMaxTemplates = 100;  // Models have two or three.
// Four times the largest tokenizer.json seen (of a vocabulary of 262,000: 33 MB), rounded up.
constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

}  // namespace

absl::Status CopyIfPresent(const std::string& model_dir, const std::string& folder,
                           const std::string& name) {
  const std::string from = absl::StrCat(model_dir, "/", name);
  const absl::Status status = CopyFile(from, absl::StrCat(folder, "/", name), kMaxFileBytes);
  std::error_code error;
  // A link to nothing is not absent: something was meant to be there.
  if (absl::IsNotFound(status) &&
      fs::symlink_status(from, error).type() == fs::file_type::not_found)
    return absl::OkStatus();
  return status;
}

absl::Status CopyTokenizerFiles(const std::string& model_dir, const std::string& data_dir,
                                const std::string& folder) {
  const auto source = [&](const char* name) {
    std::error_code ignored;
    return !data_dir.empty() && fs::exists(data_dir + "/" + name, ignored) ? data_dir : model_dir;
  };
  for (const char* name : kTokenizerFiles) {
    RETURN_IF_ERROR(CopyIfPresent(source(name), folder, name));
  }
  RETURN_IF_ERROR(CopyIfPresent(source(kChatTemplate), folder, kChatTemplate));
  const std::string templates = absl::StrCat(model_dir, "/", kMoreTemplates);
  std::error_code error;
  if (!fs::is_directory(templates, error)) return absl::OkStatus();
  const std::string copies = absl::StrCat(folder, "/", kMoreTemplates);
  RETURN_IF_ERROR(MakeFreshFolder(copies));
  int count = 0;
  fs::directory_iterator walk(templates, error);
  for (; !error && walk != fs::directory_iterator(); walk.increment(error)) {
    if (walk->path().extension() != ".jinja") continue;
    if (++count > kMaxTemplates) {
      return absl::InvalidArgumentError(
          absl::StrCat(templates, ": more than ", kMaxTemplates, " templates"));
    }
    RETURN_IF_ERROR(CopyIfPresent(templates, copies, walk->path().filename().string()));
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", templates));
  return SyncFolder(copies);
}

}  // namespace snug::checkpoint
