// What holds for all runs of snug-prepare, and what is asked of a single one while it lasts.
#ifndef SERVER_DATA_PREPARE_RUN_H_
#define SERVER_DATA_PREPARE_RUN_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "server/data/held_files.h"
#include "server/data/sha256.h"

namespace snug::server {

struct PrepareSettings {
  std::string confine;  // snug-confine, in which snug-prepare runs.
  std::string python;
  std::string script;  // snug_prepare.py
  std::string datasets_dir;
  int64_t memory_bytes = int64_t{4} << 30;
  absl::Duration timeout = absl::Hours(1);
};

struct PrepareProgress {
  const std::atomic<bool>* cancelled = nullptr;
  std::function<void(const std::string&)> say;  // "12000 rows"
  // For reading files to know their content, not for preparing.
  absl::Time read_until = absl::InfiniteFuture();
  // By SinceBoot(): what is not done by then ends with an error.
  absl::Duration until = absl::InfiniteDuration();
  Reach reach = {};  // Of the job's owner.
};

// Says how far the reading of a large file has come, once a second, until nobody waits for it.
HashWatch WatchOf(const PrepareProgress& progress);

}  // namespace snug::server

#endif  // SERVER_DATA_PREPARE_RUN_H_
