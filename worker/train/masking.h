// Which tokens of a document a model of masked tokens must find, and what it reads in their place:
// by the rule of transformers' DataCollatorForLanguageModeling (Devlin et al. 2019, section 3.1),
// drawn as a pure function of seed, epoch, row and token, so that a run that is resumed, or whose
// rows come together otherwise, sees the same.
#ifndef WORKER_TRAIN_MASKING_H_
#define WORKER_TRAIN_MASKING_H_

#include <cstdint>

namespace snug::train {

// What the tokenizer says.
struct MaskTokens {
  int32_t mask = -1;       // The id that hides a token; -1: rows are not masked.
  int64_t vocabulary = 0;  // Ids that a token is replaced by: those below.
};

struct Masking {
  double probability = 0.0;  // That a token is chosen.
  uint64_t seed = 0;
  int64_t epoch = 0;  // Or kEvaluationEpoch.
};

struct MaskedToken {
  bool chosen = false;
  int32_t read = 0;  // Of those chosen: 80 % the mask, 10 % any token, else what stands there.
};

// Of the token at place `t` of the row, where `id` stands.
MaskedToken MaskOf(const Masking& masking, const MaskTokens& tokens, int64_t row, int64_t t,
                   int32_t id);

}  // namespace snug::train

#endif  // WORKER_TRAIN_MASKING_H_
