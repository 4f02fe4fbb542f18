// How many rows at a time a GPU is fast with at the products of a head (program/head_rows.h).
#ifndef WORKER_TRAIN_MEASURE_HEAD_ROWS_H_
#define WORKER_TRAIN_MEASURE_HEAD_ROWS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/execute/device.h"

namespace snug::train {

// What is multiplied with: rows of z by a slice of a head's matrix.
struct HeadSlice {
  int64_t width = 4096;         // That of models of 8 billion parameters.
  int64_t vocabulary = 16'384;  // A product of 256 rows by it fills a large GPU once.
};

// Logits z W^T and the gradient of z, in bf16, over as many rows at each of kHeadRowChoices: the
// fewest that are within 3 % of the best. Takes a quarter of a second and 224 MB of the GPU's
// memory.
// FailedPrecondition: the GPU is too slow for it, as an emulated one.
absl::StatusOr<int32_t> MeasureHeadRows(execute::Device& gpu, const HeadSlice& slice = {});

}  // namespace snug::train

#endif  // WORKER_TRAIN_MEASURE_HEAD_ROWS_H_
