// What an op sees of memory: matrices of one row per token. Owns nothing, knows no torch.
#ifndef WORKER_EXECUTE_VIEW_H_
#define WORKER_EXECUTE_VIEW_H_

#include <array>
#include <cstdint>

#include "worker/execute/kv_cache.h"
#include "worker/program/program.h"

namespace snug::kernels {
struct FrozenWeight;
}

namespace snug::execute {

// Rows lie behind one another without gaps. Absent (data == nullptr): not needed, not wanted.
struct View {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t width = 0;  // Elements per row.
  program::DType dtype = program::DType::kF32;
  // Of a parameter in 4 or 8 bits, whose rows `data` has not: what they are in. Products alone read
  // it, and take it as a matrix of `dtype` from its row `first_row` on.
  const kernels::FrozenWeight* quantized = nullptr;
  int64_t first_row = 0;

  explicit operator bool() const { return data != nullptr; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  int64_t elements() const { return rows * width; }
  int64_t bytes() const { return elements() * program::SizeOf(dtype); }
  // `count` rows from `first` on.
  View Rows(int64_t first, int64_t count) const {
    if (quantized != nullptr) return {data, count, width, dtype, quantized, first_row + first};
    char* begin = static_cast<char*>(data) + first * width * program::SizeOf(dtype);
    return {begin, count, width, dtype};
  }
};

// One parameter as ops read it. `gradient` is fp32, of the same shape; absent when the
// parameter is frozen.
struct ParameterView {
  View value;
  View gradient;
};

// One micro-batch in the worker's static buffers, which lie on the device but for those that are
// said to be the host's. Rows of all documents lie behind one another. Trained tokens are the rows
// whose prediction has a weight other than 0, in their order.
struct Batch {
  int64_t tokens = 0;  // N
  int64_t documents = 0;
  int64_t trained = 0;  // M
  // Of a program that has such values; 0 else.
  int64_t source_tokens = 0;
  std::array<int64_t, program::kMergedStages> merged = {};
  const int32_t* ids = nullptr;         // (N)
  const int32_t* source_ids = nullptr;  // (source_tokens)
  const int32_t* positions = nullptr;   // (N) within the document; of an encoder rows of its table.
  const int32_t* token_types = nullptr;  // (N) of a model that has such.
  // (N, C*P*P) of images, of the compute type: each token's patch, 0 of those that stand for none.
  const void* patches = nullptr;
  const int64_t* offsets = nullptr;           // (documents + 1) the host's: where each one's begin.
  const int64_t* device_offsets = nullptr;    // The same on the device,
  const int32_t* device_offsets32 = nullptr;  // and of a GPU in 32 bits, as libraries take them.
  // (documents + 1) of the encoder's rows, where there is one: the host's, and the device's.
  const int64_t* source_offsets = nullptr;
  const int64_t* device_source_offsets = nullptr;
  const int64_t* device_source_counts = nullptr;  // (documents) of a GPU: how many each one has.
  const int64_t* trained_rows = nullptr;          // (M) rising
  const int32_t* labels = nullptr;                // (M) the token that the row predicts.
  // (M) of images that are mixed; else null: a second label (negative: none), the first's share.
  const int32_t* second_labels = nullptr;
  const float* shares = nullptr;
  const float* targets = nullptr;    // (M, V) of documents whose label is no class: per class.
  const float* weights = nullptr;    // (M) of the prediction.
  const float* cos = nullptr;        // (N, R/2) of a head's R elements that are turned.
  const float* sin = nullptr;        // (N, R/2)
  const float* local_cos = nullptr;  // (N, R/2) of layers that slide, if these differ.
  const float* local_sin = nullptr;  // (N, R/2)
  // What the head finds of each trained token.
  double* row_loss = nullptr;      // (M) weight times cross-entropy.
  double* row_entropy = nullptr;   // (M) of the model's distribution, in nats.
  int32_t* row_correct = nullptr;  // (M) 1: the label is the likeliest by the model.
  // (M, V) the logits of forward's head, before any softcap; null: not wanted.
  float* row_logits = nullptr;
  // (1) becomes 1 where a stream in fixed point leaves its room; a model has one that has streams.
  int32_t* overflow = nullptr;
  const KvCache* kv_cache = nullptr;  // Forward alone; null: keys are the batch's own.
  // Beside it, for a decoder that reads an encoder: keys and values of the source's tokens.
  const KvCache* source_cache = nullptr;
  // (V) where forward's head puts the last row's logits, before any softcap; then there is no
  // loss.
  float* next_logits = nullptr;

  // Where documents begin, of rows that are tokens.
  struct Offsets {
    const int64_t* host;
    const int64_t* device;
  };
  Offsets OffsetsOf(program::Rows rows) const {
    if (rows == program::Rows::kSource) return {source_offsets, device_source_offsets};
    return {offsets, device_offsets};
  }
  // How many rows a value of `rows` has here.
  int64_t Of(program::Rows rows) const;
};

// What a step knows and a tape does not.
struct StepScalars {
  double loss_scale = 1.0;  // 1 / sum of the loss weights of the whole optimizer step.
  uint64_t seed = 0;
  int64_t step = 0;            // Optimizer step, from 0.
  int64_t micro_batch = 0;     // Within it.
  bool accumulate = false;     // Gradients are added to those of the micro-batches before.
  bool dropout = true;         // Not in evaluation.
  double neftune_alpha = 0.0;  // Of the noise on the embeddings; 0: none.
};

// What the head sees of the tokens that are trained, beside their loss.
struct TokenSums {
  int64_t trained = 0;   // Tokens whose weight is not 0.
  int64_t correct = 0;   // Of these, the likeliest by the model.
  double entropy = 0.0;  // Of the model's distribution, in nats, added up over them.
  void operator+=(const TokenSums& other) {
    trained += other.trained;
    correct += other.correct;
    entropy += other.entropy;
  }
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_VIEW_H_
