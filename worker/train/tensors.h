// What a trainer holds, as tensors by key: for checkpoints, and for those who get the result.
#ifndef WORKER_TRAIN_TENSORS_H_
#define WORKER_TRAIN_TENSORS_H_

#include <vector>

#include "worker/checkpoint/checkpoint.h"
#include "worker/train/trainer.h"

namespace snug::train {

// As the optimizer has them, which is in fp32 and by the keys of the program; or as they are
// computed with and given to the user, by the keys of their files.
enum class Digits { kExact, kComputed };

// Trained parameters. All point into the trainer's memory.
std::vector<checkpoint::TensorBytes> WeightsOf(Trainer& trainer, Digits digits);
std::vector<checkpoint::TensorBytes> OptimizerStateOf(Trainer& trainer);

}  // namespace snug::train

#endif  // WORKER_TRAIN_TENSORS_H_
