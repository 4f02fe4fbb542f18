// Save in the order that leaves, whenever the process or the machine dies, either no folder of the
// checkpoint's name or a complete one: a model's small files; both files of tensors take their room
// from the disk; written, hashed, synced; then the manifest that names the hashes of all; the
// folder synced; renamed; the parent synced.
#include "worker/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/folder_name.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/new_file.h"
#include "worker/checkpoint/read_file.h"
#include "worker/checkpoint/safetensors_writer.h"
#include "worker/program/files/safetensors.h"

namespace snug::checkpoint {
namespace {

constexpr int64_t kMaxManifestBytes = 1 << 20;  // Two files need less than 2 KiB.

std::string In(const std::string& folder, const std::string& file) {
  return absl::StrCat(folder, "/", file);
}

absl::Status CheckState(const RunState& state) {
  if (!std::isfinite(state.last_loss)) {
    return absl::OutOfRangeError(
        absl::StrCat("the loss is ", state.last_loss, "; no checkpoint is written"));
  }
  if (state.global_step >= 0 && state.epoch >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("no checkpoint of step ", state.global_step, ", epoch ", state.epoch));
}

// Of each file in the folder and below it, by its path from there.
absl::StatusOr<std::map<std::string, FileDigest>> DigestsBelow(const std::string& folder) {
  std::map<std::string, FileDigest> digests;
  std::error_code error;
  std::filesystem::recursive_directory_iterator walk(folder, error);
  for (; !error && walk != std::filesystem::recursive_directory_iterator(); walk.increment(error)) {
    std::error_code ignored;
    if (walk->is_directory(ignored)) continue;
    const std::string name = walk->path().lexically_relative(folder).string();
    ASSIGN_OR_RETURN(digests[name], DigestFile(walk->path().string()));
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", folder));
  return digests;
}

// Into a fresh `folder`; none where there is no model, or where its files cannot be written.
absl::StatusOr<std::map<std::string, FileDigest>> FilesOfModel(const std::string& folder,
                                                               const ModelWriter& write_model) {
  RETURN_IF_ERROR(MakeFreshFolder(folder));
  if (write_model == nullptr) return std::map<std::string, FileDigest>{};
  if (write_model(folder).ok()) return DigestsBelow(folder);
  RETURN_IF_ERROR(MakeFreshFolder(folder));
  return std::map<std::string, FileDigest>{};
}

// All files of `folder`, synced.
absl::StatusOr<Saved> WriteFiles(const std::string& folder, const RunState& state,
                                 const SafetensorsLayout& weights,
                                 const SafetensorsLayout& optimizer,
                                 const ModelWriter& write_model) {
  Manifest manifest = {.state = state, .files = {}};
  ASSIGN_OR_RETURN(manifest.files, FilesOfModel(folder, write_model));
  const char* weights_name = manifest.files.empty() ? kWeightsFile : kModelFile;
  ASSIGN_OR_RETURN(NewFile weights_file,
                   NewFile::Create(In(folder, weights_name), weights.file_bytes));
  ASSIGN_OR_RETURN(NewFile optimizer_file,
                   NewFile::Create(In(folder, kOptimizerFile), optimizer.file_bytes));
  ASSIGN_OR_RETURN(manifest.files[weights_name],
                   WriteSafetensors(weights, std::move(weights_file)));
  ASSIGN_OR_RETURN(manifest.files[kOptimizerFile],
                   WriteSafetensors(optimizer, std::move(optimizer_file)));
  ASSIGN_OR_RETURN(const std::string text, ManifestText(manifest));
  ASSIGN_OR_RETURN(const FileDigest digest, WriteNewFile(In(folder, kManifestFile), text));
  Saved saved = {.path = "", .manifest_sha256 = digest.sha256, .bytes = 0};
  for (const auto& [name, file] : manifest.files) saved.bytes += file.bytes;
  return saved;
}

absl::StatusOr<Saved> WriteAndPublish(const std::string& path, const RunState& state,
                                      const SafetensorsLayout& weights,
                                      const SafetensorsLayout& optimizer,
                                      const ModelWriter& write_model) {
  const std::string folder = path + kUnfinished;
  RETURN_IF_ERROR(MakeFolders(std::filesystem::path(path).parent_path().string()));
  ASSIGN_OR_RETURN(Saved saved, WriteFiles(folder, state, weights, optimizer, write_model));
  RETURN_IF_ERROR(PublishFolder(folder, path));
  saved.path = path;
  return saved;
}

absl::StatusOr<Manifest> ReadManifest(const std::string& path) {
  struct stat about = {};
  if (lstat(path.c_str(), &about) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("no checkpoint at ", path));
  }
  if (!S_ISDIR(about.st_mode)) {
    return absl::DataLossError(absl::StrCat(path, " is not a folder, so no checkpoint"));
  }
  const std::string where = In(path, kManifestFile);
  const absl::StatusOr<OpenFile> file = OpenFile::Open(where, Links::kRefuse);
  if (!file.ok()) return absl::DataLossError(file.status().message());
  if (file->bytes() > kMaxManifestBytes) {
    return absl::DataLossError(absl::StrCat(where, " is damaged: ", file->bytes(), " bytes"));
  }
  std::string text(file->bytes(), '\0');
  RETURN_IF_ERROR(file->Read(0, file->bytes(), text.data()));
  return ParseManifest(text, where);
}

absl::Status CheckFile(const std::string& path, const FileDigest& expected) {
  const absl::StatusOr<FileDigest> digest = DigestFile(path);
  if (!digest.ok()) return absl::DataLossError(digest.status().message());
  if (digest->bytes != expected.bytes) {
    return absl::DataLossError(absl::StrCat(path, " is damaged: ", digest->bytes,
                                            " bytes, its manifest says ", expected.bytes));
  }
  if (digest->sha256 == expected.sha256) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, " is damaged: SHA-256 ", digest->sha256,
                                          ", its manifest says ", expected.sha256));
}

// The tensors of `wanted` are exactly those of the file.
absl::Status CheckIndex(const std::string& path, const program::TensorIndex& index,
                        const std::vector<TensorBytes>& wanted) {
  std::set<std::string> surplus;
  for (const auto& [key, entry] : index) surplus.insert(key);
  for (const TensorBytes& tensor : wanted) {
    const auto found = index.find(tensor.key);
    if (found == index.end()) {
      return absl::FailedPreconditionError(absl::StrCat(path, " has no ", tensor.key));
    }
    const program::TensorEntry& entry = found->second;
    if (entry.dtype != tensor.dtype || entry.shape != tensor.shape || entry.bytes != tensor.bytes) {
      return absl::FailedPreconditionError(absl::StrCat(
          path, ": ", tensor.key, " is ", entry.dtype, " [", absl::StrJoin(entry.shape, ", "),
          "]; this job has ", tensor.dtype, " [", absl::StrJoin(tensor.shape, ", "), "]"));
    }
    surplus.erase(tensor.key);
  }
  if (surplus.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, " has ", *surplus.begin(), ", which this job does not"));
}

absl::Status ReadTensors(const std::string& path, const std::vector<TensorBytes>& tensors) {
  ASSIGN_OR_RETURN(const program::TensorIndex index, program::ReadSafetensorsHeader(path));
  RETURN_IF_ERROR(CheckIndex(path, index, tensors));
  ASSIGN_OR_RETURN(const OpenFile file, OpenFile::Open(path, Links::kRefuse));
  for (const TensorBytes& tensor : tensors) {
    RETURN_IF_ERROR(FillTensor(file, index.at(tensor.key).begin, tensor));
  }
  return absl::OkStatus();
}

}  // namespace

std::string WeightsFileOf(const std::string& path) {
  std::error_code ignored;
  const bool model = std::filesystem::exists(In(path, kModelFile), ignored);
  return In(path, model ? kModelFile : kWeightsFile);
}

std::string CheckpointFolder(const RunState& state) {
  return CheckpointName{.step = state.global_step, .epoch = state.epoch}.text();
}

absl::StatusOr<Saved> Save(const std::string& checkpoints_dir, const RunState& state,
                           const std::vector<TensorBytes>& weights,
                           const std::vector<TensorBytes>& optimizer,
                           const ModelWriter& write_model) {
  RETURN_IF_ERROR(CheckState(state));
  ASSIGN_OR_RETURN(const SafetensorsLayout weights_layout, LayOutSafetensors(weights));
  ASSIGN_OR_RETURN(const SafetensorsLayout optimizer_layout, LayOutSafetensors(optimizer));
  const std::string path = In(checkpoints_dir, CheckpointFolder(state));
  absl::StatusOr<Saved> saved =
      WriteAndPublish(path, state, weights_layout, optimizer_layout, write_model);
  // Gives a full disk its room back; the first cause is what is reported.
  if (!saved.ok()) RemoveFolder(path + kUnfinished).IgnoreError();
  return saved;
}

absl::StatusOr<RunState> Verify(const std::string& path) {
  ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(path));
  const RunState& state = manifest.state;
  if (std::filesystem::path(path).filename() != CheckpointFolder(state)) {
    return absl::DataLossError(absl::StrCat(
        In(path, kManifestFile), " is of another checkpoint: ", CheckpointFolder(state)));
  }
  for (const char* file :
       {manifest.files.contains(kModelFile) ? kModelFile : kWeightsFile, kOptimizerFile}) {
    if (manifest.files.contains(file)) continue;
    return absl::DataLossError(absl::StrCat(In(path, kManifestFile), " does not name ", file));
  }
  for (const auto& [name, digest] : manifest.files)
    RETURN_IF_ERROR(CheckFile(In(path, name), digest));
  return state;
}

absl::StatusOr<RunState> Restore(const std::string& path, const std::vector<TensorBytes>& weights,
                                 const std::vector<TensorBytes>& optimizer) {
  ASSIGN_OR_RETURN(RunState state, RestoreWeights(path, weights));
  RETURN_IF_ERROR(ReadTensors(In(path, kOptimizerFile), optimizer));
  return state;
}

absl::StatusOr<RunState> RestoreWeights(const std::string& path,
                                        const std::vector<TensorBytes>& weights) {
  ASSIGN_OR_RETURN(RunState state, Verify(path));
  RETURN_IF_ERROR(ReadTensors(WeightsFileOf(path), weights));
  return state;
}

}  // namespace snug::checkpoint
