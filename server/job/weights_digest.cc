#include "server/job/weights_digest.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/data/sha256.h"
#include "worker/program/planning/predict.h"

namespace snug::server {
namespace {

constexpr size_t kDigits = 16;  // Of 64: enough for the few bases that a machine holds at once.

// Those of one folder: a job may have an adapter's, too.
std::set<std::string> WeightFiles(const v1::OpenedFiles& opened, const std::string& folder) {
  std::set<std::string> files;
  for (const v1::OpenedFiles::File& file : opened.files()) {
    const size_t name = file.path().rfind('/');
    if (!absl::EndsWith(file.path(), ".safetensors") || file.path().substr(0, name) != folder)
      continue;
    files.insert(
        absl::StrCat(file.device(), ".", file.inode(), ".", file.bytes(), ".", file.modified_ns()));
  }
  return files;
}

}  // namespace

std::string WeightsDigest(const program::Program& program, const v1::OpenedFiles& opened,
                          const std::string& model_dir) {
  const std::set<std::string> files = WeightFiles(opened, model_dir);
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
