// What the codes in a tape's slots stand for, in the interpreter. Streams look into it at once,
// each into slots of its own.
#ifndef TESTS_WORKER_PROGRAM_HELD_CODES_H_
#define TESTS_WORKER_PROGRAM_HELD_CODES_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace snug::program {

class HeldCodes {
 public:
  // Those of a slot; empty where it holds none.
  std::vector<double>& In(int32_t slot) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return codes_[slot];
  }
  void Erase(int32_t slot) {
    const std::lock_guard<std::mutex> lock(mutex_);
    codes_.erase(slot);
  }
  void Clear() { codes_.clear(); }

 private:
  std::mutex mutex_;
  std::map<int32_t, std::vector<double>> codes_;
};

}  // namespace snug::program

#endif  // TESTS_WORKER_PROGRAM_HELD_CODES_H_
