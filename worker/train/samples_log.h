// samples.jsonl of an attempt, beside metrics.jsonl: what the model answered to the job's prompts
// at each evaluation, one JSON object per line:
//   {"step", "prompt", "completion", "tokens"}   tokens: ids of the completion, its end among them
// A resumed attempt begins with the lines of the one before, up to the last evaluation that its
// metrics tell of; the draws are a function of the step, so what follows is what would have
// followed.
#ifndef WORKER_TRAIN_SAMPLES_LOG_H_
#define WORKER_TRAIN_SAMPLES_LOG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace snug::train {

struct Sample {
  int64_t step = 0;
  std::string prompt;
  std::string completion;  // Bytes; what is not UTF-8 in them is replaced when it is written.
  std::vector<int32_t> tokens;
};

// Begins `path` with the lines of `previous` (empty, or not there: none) whose step is at most
// `step`. A last line without its end is dropped.
absl::Status BeginSamples(const std::string& path, const std::string& previous, int64_t step);

absl::Status AppendSamples(const std::string& path, const std::vector<Sample>& samples);

// A copy of them in the folder of what is exported, synced.
absl::Status CarrySamples(const std::string& path, const std::string& folder);

// For the worker's log, on one line.
std::string Shown(const Sample& sample);

}  // namespace snug::train

#endif  // WORKER_TRAIN_SAMPLES_LOG_H_
