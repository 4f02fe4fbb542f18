// What of a model is trained, and in which numbers: with a ModelConfig all that a program is made
// from.
#ifndef WORKER_PROGRAM_TRAINING_MODE_H_
#define WORKER_PROGRAM_TRAINING_MODE_H_

#include <cstdint>

#include "worker/program/lora_config.h"
#include "worker/program/model_config.h"
#include "worker/program/quantization_kind.h"

namespace snug::program {

// Of AdamW: two fp32 numbers per element, or two of 8 bits with a scale per block (moments.h).
enum class MomentKind : uint8_t { kF32, k8Bit };

// Of a job's `reversible`: none, or each half of a layer adds to one of two streams what it makes
// of the other (Mangalam et al. 2022).
inline constexpr char kNotReversible[] = "none";
inline constexpr char kNativeStreams[] = "native";

// Of a job's `training.dropout`: as the model has it; else it is 0.
inline constexpr char kModelDropout[] = "model";

struct TrainingMode {
  bool lora = false;  // An adapter beside a frozen base; else all of it.
  LoraConfig adapter;
  DType compute = DType::kF32;
  MomentKind moments = MomentKind::kF32;
  Quantization quantization = Quantization::kNone;  // With an adapter alone.
  bool reversible = false;  // As two streams, whatever the model's files say.
  // A weight is updated in backward as soon as its gradient is complete, which then goes; but one
  // that two blocks read.
  bool release_gradients = false;
  // As config.json has it: of embeddings, halves of layers, attention, a classifier's head. The
  // adapter's is its own.
  bool dropout = true;
  // Of the class that is right: its share of 1 that is spread over all (Szegedy et al. 2016).
  double label_smoothing = 0.0;
  // What the optimizer keeps lies in the host's memory, beside the device's.
  bool optimizer_on_host = false;
};

}  // namespace snug::program

#endif  // WORKER_PROGRAM_TRAINING_MODE_H_
