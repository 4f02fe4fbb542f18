// What the rows of values stand for.
#ifndef WORKER_PROGRAM_ROWS_H_
#define WORKER_PROGRAM_ROWS_H_

#include <cstdint>

namespace snug::program {

// What a value has a row for. How many there are is the batch's; a tape's key has the most.
enum class Rows : uint8_t {
  kTokens,     // Tokens of all documents; patches of an image.
  kDocuments,  // Documents: what is classified.
  kTrained,    // Tokens that a loss is taken of.
  kSource,     // Tokens of the encoder, where there is a decoder beside it.
  kMerged1,    // Patches behind the first, the second, the third merging.
  kMerged2,
  kMerged3,
};
inline constexpr int kMergedStages = 3;

// Which of a batch's numbers per token a table is read by: kSource has those of the encoder's rows.
enum class Ids : uint8_t { kTokens, kPositions, kTokenTypes, kSource };

}  // namespace snug::program

#endif  // WORKER_PROGRAM_ROWS_H_
