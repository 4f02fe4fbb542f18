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
  void (*layer)(BlockBuilder& b, const ModelConfig& m, int64_t layer);
  // The first layer whose block is the same.
  int64_t (*alike)(const ModelConfig& m, int64_t layer);
  void (*head)(BlockBuilder& b, const ModelConfig& m);
};

// Where all layers are alike.
inline int64_t FirstLayer(const ModelConfig&, int64_t) { return 0; }

// Of images: ViT and DeiT (image_encoder.cc), Swin (windowed_encoder.cc); of texts, beside BERT's
// and its kin's: T5's without its decoder (encoder_decoder.cc).
extern const EncoderBlocks kImageEncoder, kWindowedEncoder, kEncoderOfTwo;

// Errors: as BuildProgram's.
absl::StatusOr<Program> BuildEncoder(const ModelConfig& config, const TrainingMode& mode);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_ENCODER_H_
