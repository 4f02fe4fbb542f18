// The program of the encoder families.
#ifndef WORKER_PROGRAM_ENCODER_H_
#define WORKER_PROGRAM_ENCODER_H_

#include "absl/status/statusor.h"
#include "worker/program/program.h"

namespace snug::program {

// Errors: as BuildProgram's.
absl::StatusOr<Program> BuildEncoder(const ModelConfig& config, const TrainingMode& mode);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_ENCODER_H_
