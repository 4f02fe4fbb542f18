// An allocator of a test's that knows nothing of tapes and counts what is asked of it.
#ifndef TESTS_WORKER_EXECUTE_COUNTING_SOURCE_H_
#define TESTS_WORKER_EXECUTE_COUNTING_SOURCE_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>

#include "tests/worker/execute/separate_memory.h"

namespace snug::execute {

// Guards are not counted.
class CountingSource final : public PieceSource {
 public:
  char* Take(int64_t bytes, int64_t guard) override {
    char* piece = static_cast<char*>(std::aligned_alloc(64, Rounded(bytes + 2 * guard)));
    sizes_[piece] = bytes;
    current_ += bytes;
    peak_ = std::max(peak_, current_);
    return piece;
  }
  void GiveBack(char* piece) override {
    current_ -= sizes_.at(piece);
    sizes_.erase(piece);
    std::free(piece);
  }
  int64_t current() const { return current_; }
  int64_t peak() const { return peak_; }

 private:
  static size_t Rounded(int64_t bytes) { return static_cast<size_t>((bytes + 63) / 64 * 64); }
  std::map<char*, int64_t> sizes_;
  int64_t current_ = 0;
  int64_t peak_ = 0;
};

}  // namespace snug::execute

#endif  // TESTS_WORKER_EXECUTE_COUNTING_SOURCE_H_
