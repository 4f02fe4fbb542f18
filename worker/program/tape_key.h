// The sizes that a tape is laid out for.
#ifndef WORKER_PROGRAM_TAPE_KEY_H_
#define WORKER_PROGRAM_TAPE_KEY_H_

#include <array>
#include <compare>
#include <cstdint>

#include "worker/program/program.h"

namespace snug::program {

// Sizes for which offsets are laid out. A batch may run on the tape when no coordinate of it is
// larger; ops run at true sizes.
struct TapeKey {
  int64_t tokens = 0;  // Of one micro-batch, all documents.
  int64_t documents = 0;
  int64_t longest_document = 0;  // Tokens.
  // Rows that a loss is taken of, where a program has such values; 0: perhaps all tokens.
  int64_t trained = 0;
  // Of the encoder of an encoder-decoder; its documents are as many as the decoder's.
  int64_t source_tokens = 0;
  int64_t longest_source = 0;
  std::array<int64_t, kMergedStages> merged = {};  // Patches of the stages behind the first.

  // How many rows a value of `rows` has.
  int64_t Of(Rows rows) const;
  // Of the documents of such rows, which are tokens, those of the longest.
  int64_t LongestOf(Rows rows) const {
    return rows == Rows::kSource ? longest_source : longest_document;
  }
  // This key with at most so many of `rows`.
  TapeKey Limited(Rows rows, int64_t most) const;
  bool Covers(const TapeKey& batch) const;
  // The smallest key that covers both.
  TapeKey Joined(const TapeKey& other) const;
  auto operator<=>(const TapeKey&) const = default;
};

}  // namespace snug::program

#endif  // WORKER_PROGRAM_TAPE_KEY_H_
