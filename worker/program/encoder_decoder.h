// The program of the encoder-decoder families.
#ifndef WORKER_PROGRAM_ENCODER_DECODER_H_
#define WORKER_PROGRAM_ENCODER_DECODER_H_

#include "absl/status/statusor.h"
#include "worker/program/program.h"

namespace snug::program {

// Errors: as BuildProgram's.
absl::StatusOr<Program> BuildEncoderDecoder(const ModelConfig& config, const TrainingMode& mode);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_ENCODER_DECODER_H_
