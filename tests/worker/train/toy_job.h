// A tiny model and a prepared dataset on disk, and an attempt over them: what the tests of weights
// and trainer share. Files are written byte by byte here, so that they can have what the worker's
// own writer never writes: halves, and tensors where no tensor belongs.
#ifndef TESTS_WORKER_TRAIN_TOY_JOB_H_
#define TESTS_WORKER_TRAIN_TOY_JOB_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/worker/program/models.h"
#include "worker/program/planning/predict.h"
#include "worker/train/attempt.h"

namespace snug::train {

struct ToyTensor {
  std::string key;
  std::string dtype;  // "F32", "BF16", "F16", "I32", "I64"
  std::vector<int64_t> shape;
  std::string bytes;
};

// In the order given. `shift`: by how many bytes the data begin beside a multiple of 8.
void WriteTensors(const std::string& path, const std::vector<ToyTensor>& tensors, int shift = 0);

struct ToyModel {
  program::LlamaSizes sizes = {2, 32, 4, 2, 48, 61};
  bool tied = false;
  double attention_dropout = 0.0;
  std::string dtype = "F32";  // Of every tensor in the file.
  int shift = 0;              // See WriteTensors.
  float deviation = 0.3f;     // Of the matrices' elements.
  uint32_t seed = 1;
};

// The tensors of such a model, drawn by its seed; the same values whatever their dtype, rounded.
std::vector<ToyTensor> TensorsOf(const ToyModel& model);

// config.json and model.safetensors in a new folder. With `tensors`, those instead of the model's.
void WriteModel(const std::string& folder, const ToyModel& model);
void WriteModel(const std::string& folder, const ToyModel& model,
                const std::vector<ToyTensor>& tensors);

// A prepared dataset of rows of these lengths in a new folder; a third of the tokens are no target.
// `labels`: of its rows, where these have such.
void WriteData(const std::string& folder, const std::vector<int64_t>& row_tokens,
               int64_t vocabulary, uint32_t seed = 2, const std::vector<ToyTensor>& labels = {});

// A file of prompts of these lengths, whose tokens stand for their number and a space; the last id
// of the vocabulary ends an answer.
void WritePrompts(const std::string& path, const std::vector<int64_t>& tokens, int64_t vocabulary,
                  uint32_t seed = 3);

// Steps of micro-batches of 2 rows, two of them per step; no cap, no checkpoints, no clipping.
TrainingOptions ToyTraining();

// An attempt over `folder`/model, `folder`/data and, where it exists, `folder`/eval, under the plan
// that keeps everything. Its own folders are attempt-1 and checkpoints.
AttemptOptions ToyAttempt(const std::string& folder, const program::TrainingMode& mode,
                          const TrainingOptions& training);

// What the daemon would reserve for it on its device.
program::Prediction PredictionOf(const AttemptOptions& attempt);

}  // namespace snug::train

#endif  // TESTS_WORKER_TRAIN_TOY_JOB_H_
