// How much of something is kept: the newest up to a count, an age and bytes.
#ifndef SERVER_RETENTION_TALLY_H_
#define SERVER_RETENTION_TALLY_H_

#include <cstdint>

#include "absl/time/time.h"
#include "server/retention/limits.h"

namespace snug::server {

class Tally {
 public:
  explicit Tally(const KeepLimits& limits) : limits_(limits) {}

  // Whether the next older thing may stay beside those that do.
  bool Fits(absl::Duration age, int64_t bytes) const {
    return age <= limits_.age && count_ < limits_.count && bytes <= limits_.bytes - bytes_;
  }
  // One that stays.
  void Add(int64_t bytes) {
    ++count_;
    bytes_ += bytes;
  }

 private:
  const KeepLimits limits_;
  int64_t count_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace snug::server

#endif  // SERVER_RETENTION_TALLY_H_
