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
#include "worker/train/evaluation_sums.h"
#include "worker/train/masking.h"
#include "worker/train/patches.h"
#include "worker/train/row_draws.h"

namespace snug::train {

class BatchBuffers {
 public:
  // `key`: of the largest micro-batch, coordinate by coordinate.
  static absl::StatusOr<BatchBuffers> Allocate(const program::Program& program,
                                               const program::TapeKey& key,
                                               execute::Device& device);

  int64_t held_bytes() const;

  // Rows become documents, one behind another. The result is valid until the next call.
  absl::StatusOr<execute::Batch> Fill(const Dataset& dataset, const MicroBatch& rows,
                                      const RowDraws& draws = {});

  // Of a model that classifies: what the last batch's evaluation found, once its tape has run.
  // Valid as above.
  absl::StatusOr<Predictions> Found();

  // One document's tokens, of which `past` came before, and those of the source that are read with
  // them: nothing is trained. Valid as above.
  absl::StatusOr<execute::Batch> FillTokens(std::span<const int32_t> ids,
                                            std::span<const int32_t> source, int64_t past);

 private:
  // An array that the host fills. On a device whose memory the host does not read it is filled
  // beside and copied.
  template <typename T>
  struct Filled {
    execute::DeviceBuffer buffer;
    std::vector<T> beside;
    T* host() { return beside.empty() ? device() : beside.data(); }
    T* device() { return reinterpret_cast<T*>(buffer.data()); }
  };
  // Cosines and sines of positions by frequencies.
  struct Angles {
    Filled<float> frequencies;  // (R/2); empty: the model has no such angles.
    float attention_factor = 1.0f;
    execute::DeviceBuffer cos, sin;
  };

  BatchBuffers(const program::Program& program, execute::Device& device)
      : BatchBuffers(program.config, device) {
    if (program.config.of_images()) patch_grid_ = PatchGridOf(program.config, program.compute);
  }
  BatchBuffers(const program::ModelConfig& config, execute::Device& device)
      : device_(&device),
        targets_of_model_(config.has_targets() ? config.labels : 0),
        classes_of_model_(config.classifies() ? config.labels : 0),
        task_(config.task),
        encodes_(config.encoder),
        has_source_(config.has_source()),
        start_token_(static_cast<int32_t>(config.start_token)),
        pad_token_(config.pad_token),
        token_types_of_model_(config.token_types),
        first_position_(config.first_position),
        stages_(config.stages.size()) {}
  absl::Status AllocateAngles(const std::vector<float>& frequencies, int64_t tokens,
                              Angles& angles);
  template <typename T>
  absl::Status Allocate(int64_t elements, Filled<T>& array);
  template <typename T>
  absl::Status Upload(Filled<T>& array, int64_t elements);
  // Which of a row's tokens are there.
  struct Part {
    int64_t first = 0, end = 0;
    int64_t tokens() const { return end - first; }
  };
  Part PartOf(const Dataset& dataset, int64_t row) const;
  // Positions and types of the tokens of a row that lies from token `begin` on.
  void Place(const Dataset& dataset, int64_t row, int64_t begin);
  // What is trained of a row that lies from token `begin` on, behind `trained` others; gives how
  // many are by then.
  int64_t Train(const Dataset& dataset, int64_t row, int64_t begin, int64_t trained);
  int64_t TrainTokens(const Dataset& dataset, int64_t row, int64_t begin, int64_t trained);
  int64_t ClassifyTokens(const Dataset& dataset, int64_t row, int64_t begin, int64_t trained);
  int64_t TrainTarget(const Dataset& dataset, int64_t row, int64_t begin, int64_t trained);
  // The image of a row, whose tokens lie from `begin` on and whose loss is number `trained`.
  void LayImage(const Dataset& dataset, int64_t row, int64_t begin, int64_t trained,
                const EpochImages* images);
  absl::Status AddMixed(int64_t trained, execute::Batch& batch);  // Second labels, and shares.
  // The encoder's rows.
  absl::Status AddSources(const std::vector<std::span<const int32_t>>& sources,
                          execute::Batch& batch);
  int64_t TrainMasked(const Dataset& dataset, int64_t row, int64_t begin, int64_t trained);
  int64_t TrainDocument(const Dataset& dataset, int64_t row, int64_t begin, int64_t trained);
  absl::Status CheckRoom(int64_t tokens, int64_t documents) const;
  absl::Status FillAngles(Angles& angles, int64_t tokens);
  // Uploads what was filled and computes the angles of the first `tokens` positions.
  absl::StatusOr<execute::Batch> Finish(int64_t tokens, int64_t documents, int64_t trained);

  execute::Device* device_;
  int64_t targets_of_model_;  // Of a document; 0: it has a class.
  int64_t classes_of_model_;  // Outputs of a head that classifies; 0: it does not.
  int64_t trained_ = 0;       // Of the last batch.
  program::Task task_;
  bool encodes_, has_source_;
  int32_t start_token_;
  Masking masking_;          // Of the batch that is filled,
  int64_t most_tokens_ = 0;  // and RowDraws::most_tokens.
  int64_t pad_token_, token_types_of_model_, first_position_;
  size_t stages_;  // Of merged patches there are fewer in each.
  Angles angles_, local_angles_;
  Filled<int32_t> ids_, positions_, token_types_, labels_, source_ids_;
  Filled<int64_t> offsets_, trained_rows_, source_offsets_;
  Filled<int32_t> offsets32_;      // Of a GPU, as are these.
  Filled<int64_t> source_counts_;  // Tokens of each source.
  Filled<float> weights_, targets_;
  Filled<float> logits_;  // The device fills it, and the host looks.
  PatchGrid patch_grid_;  // Of images.
  Filled<char> patches_;
  Filled<int32_t> second_labels_;
  Filled<float> shares_;
  execute::DeviceBuffer row_loss_, row_entropy_, row_correct_, overflow_;
};

// Sum of the loss weights of the rows: what the loss of an optimizer step is divided by. Of rows
// that are classified each has 1; of those that are masked the tokens chosen count.
double LossWeight(const Dataset& dataset, const MicroBatch& rows, const Masking& masking = {});

}  // namespace snug::train

#endif  // WORKER_TRAIN_BATCH_BUFFERS_H_
