// A program with random parameters and a batch of documents, ready to run tapes: what the
// executor's tests share. Its own memory comes from operator new, so that the worker's allocator
// counts what the executor takes and nothing else.
#ifndef TESTS_WORKER_EXECUTE_TOY_RUN_H_
#define TESTS_WORKER_EXECUTE_TOY_RUN_H_

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "tests/worker/execute/trained_tokens.h"
#include "worker/execute/executor.h"
#include "worker/program/lower.h"

namespace snug::execute {

// A matrix of fp32 or bf16 that owns its memory.
struct OwnedMatrix {
  OwnedMatrix() = default;
  OwnedMatrix(int64_t rows, int64_t width, program::DType dtype);
  View view() const { return {const_cast<char*>(bytes.data()), rows, width, dtype}; }
  void FillNormal(std::mt19937& random, float mean, float deviation);

  int64_t rows = 0;
  int64_t width = 0;
  program::DType dtype = program::DType::kF32;
  std::vector<char> bytes;
};

class ToyRun {
 public:
  // Every third row has weight 0; of who classifies all but the one of each document that is read.
  ToyRun(program::Program program, std::vector<int64_t> document_lengths, uint32_t seed = 1);

  program::TapeKey key() const;
  program::Tape Lower(const program::Plan& plan, bool training = true) const;
  absl::StatusOr<double> Run(const program::Tape& tape, SlotMemory& memory, Executor& executor);
  // A fresh executor and an arena of its own. Gradients are those of so many micro-batches, all the
  // same one; the loss is one's.
  absl::StatusOr<double> RunInArena(const program::Tape& tape, Device& device,
                                    int micro_batches = 1);

  // Of the runs from here on: other random draws.
  void UseStep(int64_t step) { step_ = step; }
  // ... and no loss: the batch trains no row.
  void TrainNothing() { batch_.trained = 0; }

  // All of them, one behind another.
  std::vector<float> Gradients() const;

  const program::Program& program() const { return program_; }
  std::vector<ParameterView>& parameters() { return views_; }
  const Batch& batch() const { return batch_; }

 private:
  absl::StatusOr<double> RunMicroBatch(const program::Tape& tape, SlotMemory& memory,
                                       Executor& executor, bool accumulate);
  // What nobody may add to: NaN, where the tape begins a gradient; zeros where it gives none.
  void SpoilGradients(const program::Tape& tape);
  void FillBatch(std::mt19937& random);
  // Where the model reads sources: each document's is of another length than it.
  void FillSources(std::mt19937& random);

  program::Program program_;
  std::vector<int64_t> lengths_;
  std::vector<OwnedMatrix> values_, gradients_;
  std::vector<ParameterView> views_;
  std::vector<int32_t> ids_, positions_, token_types_, source_ids_;
  std::vector<int64_t> offsets_, source_offsets_;
  int64_t longest_source_ = 0;
  std::optional<TrainedTokens> trained_;
  std::vector<int32_t> overflow_ = {0};
  std::vector<float> cos_, sin_, local_cos_, local_sin_;
  Batch batch_;
  int64_t step_ = 5;
};

// One per process: it sets the process's allocator.
Device& TestDevice();

}  // namespace snug::execute

#endif  // TESTS_WORKER_EXECUTE_TOY_RUN_H_
