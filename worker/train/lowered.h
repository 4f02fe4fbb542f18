// What a plan comes to for an attempt: its tapes, and their bytes.
#ifndef WORKER_TRAIN_LOWERED_H_
#define WORKER_TRAIN_LOWERED_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/program/generation.h"
#include "worker/program/planning/exact_step.h"
#include "worker/program/planning/predict.h"
#include "worker/program/tape.h"

namespace snug::train {

struct Lowered {
  std::string name;
  program::Tape step, evaluation;
  program::GenerationLayout generation;
  program::Components bytes;  // As predicted, without the context.
  // By parameter, as of program::InexactKindsOf; empty: the plan is exact, or nobody asks.
  std::vector<uint32_t> inexact_kinds;
  std::optional<program::ExactStep> exact;  // That the plan is measured by, where it can be.
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_LOWERED_H_
