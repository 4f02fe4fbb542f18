#include "server/job/weights_digest.h"

#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/data/sha256.h"
#include "worker/program/planning/predict.h"

namespace snug::server {
namespace {

constexpr size_t kDigits = 16;  // Of 64: enough for the few bases that a machine holds at once.

// Links lead to the same file from wherever they are.
std::set<std::string> FilesOf(const std::string& folder) {
  std::set<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    struct stat file {};
    if (entry.path().extension() != ".safetensors") continue;
    if (stat(entry.path().c_str(), &file) != 0) return {};
    files.insert(absl::StrCat(file.st_dev, ".", file.st_ino, ".", file.st_size, ".",
                              file.st_mtim.tv_sec, ".", file.st_mtim.tv_nsec));
  }
  return error ? std::set<std::string>() : files;
}

}  // namespace

std::string WeightsDigest(const program::Program& program, const std::string& model_dir) {
  const std::set<std::string> files = FilesOf(model_dir);
  if (files.empty() || program::FrozenBytes(program) == 0) return "";
  std::string text = absl::StrJoin(files, "\n");
  for (const program::Parameter& parameter : program.parameters) {
    if (!program::IsFrozen(parameter)) continue;
    absl::StrAppend(&text, "\n", parameter.key, " ", absl::StrJoin(parameter.shape, "x"), " ",
                    static_cast<int>(parameter.dtype), " ",
                    static_cast<int>(parameter.quantization));
  }
  return Sha256Hex(text).substr(0, kDigits);
}

}  // namespace snug::server
