// A checkpoint folder: step-000123.e1/ with weights.safetensors, optimizer.safetensors (m, v of
// each), and MANIFEST.json (schema, job, epoch, step, data cursor, seed, plan, sha256 and size of
// each file). A checkpoint of a whole model is a Hugging Face folder as well: its weights are in
// model.safetensors, beside config.json, the tokenizer and an index of the weights. A checkpoint is
// either absent or complete and verified: written in step-000123.e1.tmp/, every file and folder
// fsynced, then renamed without replacing.
// safetensors only, never pickle; no torch here.
#ifndef WORKER_CHECKPOINT_CHECKPOINT_H_
#define WORKER_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/tensor_bytes.h"

namespace snug::checkpoint {

// The best evaluation of a run so far.
struct BestState {
  int64_t step = -1;  // After which it was made; -1: none yet.
  double metric = 0.0;
  int64_t waited = 0;      // Evaluations since one that was better by more than the threshold.
  std::string checkpoint;  // Name of its folder; empty: not saved.
};

// Everything a run's next step depends on beside the tensors. Randomness is a function of (seed,
// step, ...), so the seed and the step are its whole state; the schedule's is the step and
// max_steps.
struct RunState {
  std::string job_id;
  int32_t epoch = 0;        // Of the attempt that saved.
  int64_t global_step = 0;  // Done.
  int64_t max_steps = 0;
  uint64_t seed = 0;
  int64_t data_epoch = 0;  // Cursor: the next optimizer step begins here.
  int64_t data_micro_batch = 0;
  int64_t num_tokens = 0;
  double last_loss = 0.0;
  std::string plan_name;
  std::string dataset_sha256;
  BestState best;
  std::string products;  // execute::GemmChoiceText: a resumed run multiplies as this one did.
};

struct Saved {
  std::string path;
  std::string manifest_sha256;
  int64_t bytes = 0;
};

// Writes all of a model's folder but the weights, each file synced.
using ModelWriter = std::function<absl::Status(const std::string& folder)>;

// Makes `checkpoints_dir` where it is missing. OUT_OF_RANGE: a tensor or the loss is not finite; a
// NaN checkpoint never exists. UNAVAILABLE: no room on the disk. `write_model`: of whole models,
// else null. Nobody needs its files to resume, so where it fails they are left out.
absl::StatusOr<Saved> Save(const std::string& checkpoints_dir, const RunState& state,
                           const std::vector<TensorBytes>& weights,
                           const std::vector<TensorBytes>& optimizer,
                           const ModelWriter& write_model = nullptr);

// Reads MANIFEST.json and verifies every size and hash.
absl::StatusOr<RunState> Verify(const std::string& path);

// Verifies, then fills the tensors (each key present, dtype and shape equal).
absl::StatusOr<RunState> Restore(const std::string& path, const std::vector<TensorBytes>& weights,
                                 const std::vector<TensorBytes>& optimizer);

// The same of the weights alone.
absl::StatusOr<RunState> RestoreWeights(const std::string& path,
                                        const std::vector<TensorBytes>& weights);

// Keeps the newest `keep`, and the one named `best` (empty: none); an older one goes only when a
// newer one has been verified by reading it again.
absl::Status Prune(const std::string& checkpoints_dir, int64_t keep, const std::string& best = "");

// The path of the weights in a checkpoint.
std::string WeightsFileOf(const std::string& path);

// The name of the folder that Save gives to such a state.
std::string CheckpointFolder(const RunState& state);

// Complete checkpoints of a folder by step, oldest first. Left-over .tmp folders are no
// checkpoints.
absl::StatusOr<std::vector<std::string>> List(const std::string& checkpoints_dir);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_CHECKPOINT_H_
