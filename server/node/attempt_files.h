// The files of an attempt: where they lie, the lock that proves that its shim lives, and what a
// dead one left behind.
//
//   <state>/jobs/<job>/checkpoints/step-000123.e1/   shared by the job's attempts
//   <state>/jobs/<job>/attempts/<epoch>/             assignment.binpb lock exit.json result.json
//                                                    worker.log metrics.jsonl output/
#ifndef SERVER_NODE_ATTEMPT_FILES_H_
#define SERVER_NODE_ATTEMPT_FILES_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "snug/v1/worker.pb.h"

namespace snug::server {

std::string AttemptDir(const std::string& state_dir, const std::string& job, int epoch);
std::string CheckpointsDir(const std::string& state_dir, const std::string& job);

// Takes the attempt's lock for a shim that is about to start; the descriptor is to be passed to it.
// FAILED_PRECONDITION: a shim lives.
absl::StatusOr<int> TakeAttemptLock(const std::string& attempt_dir);

// The pid that the shim wrote into its lock; 0: it did not come that far. An error: nobody can say
// now, and nothing follows from that.
absl::StatusOr<pid_t> ReadShimPid(const std::string& attempt_dir);
// The same for whoever asks again while it is 0, which here is also what nobody can say now.
pid_t ShimPid(const std::string& attempt_dir);

// Which attempt of which daemon: its job and epoch come again when a store is rolled back or its
// folder is used by another, the nonce does not.
struct AttemptIdentity {
  std::string instance;  // Of the store.
  std::string job;
  int epoch = 0;
  std::string nonce;
};

// exit.json
struct ExitRecord {
  int64_t pid = 0;
  int exit_code = -1;
  int signal = 0;
  int64_t oom_kills = 0;  // Processes that the kernel ended for the memory of
  std::string cgroup;     // this control group; empty: of none.
  std::string text;
};

// Nothing: there is none. DATA_LOSS: it is there and is not what the shim of this attempt writes.
// Another error: it cannot be read now.
absl::StatusOr<std::optional<ExitRecord>> ReadExitRecord(const std::string& attempt_dir,
                                                         const AttemptIdentity& identity);

// result.json, likewise.
absl::StatusOr<std::optional<v1::WorkerResult>> ReadResult(const std::string& attempt_dir);

// The whole regular file, at most `limit` bytes. NOT_FOUND: there is none. DATA_LOSS: it is more,
// or no file. Any other error says that it cannot be read now.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, int64_t limit);

// Whole or not at all: written aside, renamed. Not fsynced.
absl::Status WriteFile(const std::string& path, const std::string& bytes);

}  // namespace snug::server

#endif  // SERVER_NODE_ATTEMPT_FILES_H_
