// The programs of the encoder families.
#ifndef WORKER_PROGRAM_ENCODER_H_
#define WORKER_PROGRAM_ENCODER_H_

#include "absl/status/statusor.h"
#include "worker/program/program.h"

namespace snug::program {

class BlockBuilder;

// What sets the programs of encoders apart: what they make of tokens, of layers and of the last
// layer's rows. Each grows a block of its own.
struct EncoderBlocks {
  void (*embeddings)(BlockBuilder& b, const ModelConfig& m);
  void (*layer)(BlockBuilder& b, const ModelConfig& m);
  void (*head)(BlockBuilder& b, const ModelConfig& m);
};

// Of images: ViT and DeiT (image_encoder.cc).
extern const EncoderBlocks kImageEncoder;

// Errors: as BuildProgram's.
absl::StatusOr<Program> BuildEncoder(const ModelConfig& config, const TrainingMode& mode);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_ENCODER_H_
