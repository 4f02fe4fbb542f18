// The training section of a JobSpec: what is wrong with it, and its defaults.
#ifndef SERVER_JOB_CHECK_TRAINING_H_
#define SERVER_JOB_CHECK_TRAINING_H_

#include <cstdint>

#include "server/job/spec_checker.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

// Bounds of sample generations: each evaluation waits for them.
inline constexpr int kMaxSamplePrompts = 64;
inline constexpr int64_t kMaxSamplePromptBytes = 64 << 10;
inline constexpr int64_t kMaxSampleTokens = 4096;

void CheckTraining(const v1::JobSpec& spec, Checker& check);

// As job.proto says. `model_limit_tokens` caps the default of max_seq_length.
void FillTraining(v1::TrainingSpec& training, bool lora, int64_t model_limit_tokens);

}  // namespace snug::server

#endif  // SERVER_JOB_CHECK_TRAINING_H_
