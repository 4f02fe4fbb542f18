// How rows of a dataset become a micro-batch: what is drawn of them, and how much of each is there.
#ifndef WORKER_TRAIN_ROW_DRAWS_H_
#define WORKER_TRAIN_ROW_DRAWS_H_

#include <cstdint>

#include "worker/train/augmenter.h"
#include "worker/train/masking.h"

namespace snug::train {

// Images as they are trained in an epoch.
struct EpochImages {
  Augmenter& augmenter;
  int64_t epoch = 0;
};

// What each epoch draws anew of rows, and how much of each is there.
struct RowDraws {
  Masking masking;                      // Of rows that are masked.
  const EpochImages* images = nullptr;  // Null where none is augmented.
  // At most so many tokens of a document, and of a source: a decoder's last ones, as the answer
  // is at the end, else the first. 0: all.
  int64_t most_tokens = 0, most_source_tokens = 0;
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_ROW_DRAWS_H_
