// The static buffers of a micro-batch, as large as the largest one needs: exactly
// program::BatchBytes.
#ifndef WORKER_TRAIN_BATCH_BUFFERS_H_
#define WORKER_TRAIN_BATCH_BUFFERS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/execute/device.h"
#include "worker/execute/view.h"
#include "worker/program/program.h"
#include "worker/program/tape.h"
#include "worker/train/batches.h"
#include "worker/train/dataset.h"

namespace snug::train {

class BatchBuffers {
 public:
  // `key`: of the largest micro-batch, coordinate by coordinate.
  static absl::StatusOr<BatchBuffers> Allocate(const program::ModelConfig& config,
                                               const program::TapeKey& key,
                                               execute::Device& device);

  // Rows become documents, one behind another. The result is valid until the next call.
  absl::StatusOr<execute::Batch> Fill(const Dataset& dataset, const MicroBatch& rows);

  // One document's tokens, of which `past` came before: nothing is trained. Valid as above.
  absl::StatusOr<execute::Batch> FillTokens(std::span<const int32_t> ids, int64_t past);

 private:
  absl::Status CheckRoom(int64_t tokens, int64_t documents) const;
  // Rotation tables of the first `tokens` positions, and the views of all buffers.
  absl::StatusOr<execute::Batch> Finish(int64_t tokens, int64_t documents);

  int64_t head_width_ = 0;
  std::vector<float> frequencies_;  // (D/2), on the host.
  execute::DeviceBuffer ids_, labels_, weights_, positions_, offsets_, cos_, sin_;
};

// Sum of the loss weights of the rows: what the loss of an optimizer step is divided by.
double LossWeight(const Dataset& dataset, const MicroBatch& rows);

}  // namespace snug::train

#endif  // WORKER_TRAIN_BATCH_BUFFERS_H_
