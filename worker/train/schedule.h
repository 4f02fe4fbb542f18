// The learning rate of each optimizer step, to the last bit as transformers' get_scheduler gives
// it.
#ifndef WORKER_TRAIN_SCHEDULE_H_
#define WORKER_TRAIN_SCHEDULE_H_

#include <cstdint>

#include "worker/train/training_options.h"

namespace snug::train {

// Warm-up steps of a run of `max_steps`: those given, else the ratio of all, rounded up.
int64_t WarmupSteps(const TrainingOptions& options, int64_t max_steps);

// Of optimizer step `step` (0 .. max_steps - 1): learning_rate times the schedule's factor.
double LearningRate(const TrainingOptions& options, int64_t step, int64_t max_steps);

}  // namespace snug::train

#endif  // WORKER_TRAIN_SCHEDULE_H_
