// What a measurement of an inexact gradient found, by kind of stash.
#ifndef WORKER_TRAIN_KIND_DRIFT_H_
#define WORKER_TRAIN_KIND_DRIFT_H_

#include <cstdint>
#include <map>
#include <string>

namespace snug::train {

// For the inexact gradient g and the exact one e.
struct KindDrift {
  double cosine = 0.0;          // <g, e> / (|g| |e|)
  double relative_error = 0.0;  // |g - e| / |e|
  int64_t global_step = 0;      // In which it was measured.
  int64_t tokens = 0;           // On so many.
};

using DriftByKind = std::map<std::string, KindDrift>;  // By program::StashRow::name.

}  // namespace snug::train

#endif  // WORKER_TRAIN_KIND_DRIFT_H_
