// Where the memory of sample generation lies in the arena: the forward tape at its bottom, and
// behind it what outlives a run of it: keys and values of all tokens so far, how many these are,
// the last row's logits, and room to sort them. Nothing of a training step is alive then, so the
// arena serves both.
#ifndef WORKER_PROGRAM_GENERATION_H_
#define WORKER_PROGRAM_GENERATION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/lower.h"
#include "worker/program/plan.h"
#include "worker/program/planning/predict.h"
#include "worker/program/program.h"
#include "worker/program/tape.h"

namespace snug::program {

// One prompt at a time: `tokens` of the longest prompt; its document grows to `longest_document`,
// the prompt and all that may be added to it. Of a model that reads a source the prompt is that;
// its document begins with one token, and grows to the answer.
TapeKey GenerationKey(const ModelConfig& config, int64_t prompt_tokens, int64_t new_tokens);

// Where blocks have the keys and values of all tokens so far, (rows, Hkv*D) each.
struct CacheLayout {
  std::vector<int64_t> keys;    // By block: their offset; -1: it has none.
  std::vector<int64_t> values;  // The same of its values.
  int64_t rows = 0;             // The most that there may be.
};

struct GenerationLayout {
  Tape tape;            // Runs the prompt, then token after token.
  CacheLayout own;      // Of the document's tokens.
  CacheLayout sources;  // Of the source's, for the blocks that read an encoder.
  int64_t spans = 0;    // (2, 2) int64: of each, where a document's keys begin, and their number.
  int64_t logits = 0;   // (V) fp32
  int64_t order = 0;    // (V) int32
  int64_t bytes = 0;    // Of the arena.
};

absl::StatusOr<GenerationLayout> LayOutGeneration(const Program& program, const Plan& plan,
                                                  LowerOptions options);

// LayOutGeneration's bytes, for a forward tape of `tape_bytes`.
int64_t GenerationBytes(const Program& program, const TapeKey& key, int64_t tape_bytes);

// The same model with nothing to train: for a worker that answers prompts and does nothing else.
Program Frozen(Program program);

// All that such a worker takes of a device: the parameters, the inputs, and the arena that
// LayOutGeneration lays out for a frozen program.
absl::StatusOr<Components> AnsweringBytes(const Program& frozen, const LowerOptions& options,
                                          int64_t context_bytes);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_GENERATION_H_
