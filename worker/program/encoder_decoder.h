// The program of the encoder-decoder families. (That of their encoder alone is an encoder's:
// encoder.h.)
#ifndef WORKER_PROGRAM_ENCODER_DECODER_H_
#define WORKER_PROGRAM_ENCODER_DECODER_H_

#include "absl/status/statusor.h"
#include "worker/program/program.h"

namespace snug::program {

// Makes the model its encoder alone, without a head.
void KeepEncoder(ModelConfig& config);

// Errors: as BuildProgram's.
absl::StatusOr<Program> BuildEncoderDecoder(const ModelConfig& config, const TrainingMode& mode);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_ENCODER_DECODER_H_
