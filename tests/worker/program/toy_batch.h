// What the interpreter is run on.
#ifndef TESTS_WORKER_PROGRAM_TOY_BATCH_H_
#define TESTS_WORKER_PROGRAM_TOY_BATCH_H_

#include <cstdint>
#include <vector>

#include "worker/program/rows.h"

namespace snug::program {

// Documents one behind another.
struct ToyBatch {
  std::vector<int> ids;
  std::vector<int> labels;  // Of the token at the same place; -1: no loss.
  std::vector<int> document_lengths;
  std::vector<int> source_ids, source_lengths;  // Of an encoder's rows, for as many documents.

  std::vector<int64_t> trained() const;
  // How many rows there are for each document; rows that are merged or selected are one document.
  std::vector<int> documents(Rows rows) const;
};

}  // namespace snug::program

#endif  // TESTS_WORKER_PROGRAM_TOY_BATCH_H_
