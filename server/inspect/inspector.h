// What a job's files say, read by snug-inspect: the daemon itself opens them and reads none.
//
// Answers are remembered by the files' identities and by the part of the spec that they depend on,
// so that jobs of one model, and a restart with thousands of them, cost one process.
#ifndef SERVER_INSPECT_INSPECTOR_H_
#define SERVER_INSPECT_INSPECTOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/inspect/file_access.h"
#include "server/inspect/user_files.h"
#include "server/job/check_job.h"
#include "snug/v1/inspect.pb.h"

namespace snug::server {

struct InspectSettings {
  std::string program;  // snug-inspect
  // Of a process that has 20 s of CPU time, on a machine or a disk that is busy.
  absl::Duration timeout = absl::Seconds(60);
  Roots roots = {};
};

// What CheckJob says, by way of another process.
class Inspector {
 public:
  explicit Inspector(InspectSettings settings)
      : settings_(std::move(settings)), access_(settings_.roots) {}

  struct Order {
    const Principal& who;  // Whose rights open the files.
    InputFiles inputs = InputFiles::kNeeded;
    const std::atomic<bool>* cancelled = nullptr;  // Polled; ends the process with CANCELLED.
    std::function<void()> on_read = nullptr;       // Called where the files are not known yet.
    // Called before what the other process says is worked on in this one; what it gives is let go
    // of after that.
    std::function<std::shared_ptr<void>()> hold = nullptr;
  };

  const FileAccess& access() const { return access_; }

  // Takes milliseconds, seconds for a large tokenizer. INVALID_ARGUMENT with all violations at
  // once, also where the files made their reader fail; UNAVAILABLE: the machine has no room now.
  absl::StatusOr<CheckedJob> Check(const v1::JobSpec& spec, const Origins& origins,
                                   const Order& order);

  // For a job whose inputs are done, and that still begins with its adapter.
  absl::Status OpenAdapter(const AdapterOrigin& adapter, const Principal& who,
                           CheckedJob& job) const;

 private:
  absl::StatusOr<CheckedJob> Read(const v1::JobSpec& asked, const Origins& origins,
                                  const Order& order);
  absl::StatusOr<CheckedJob> ReadNow(const v1::JobSpec& spec,
                                     const absl::StatusOr<ModelOrigin>& model,
                                     const UserFiles& files, const Order& order);
  struct Remembered {
    std::shared_ptr<const CheckedJob> job;
    int64_t used = 0;
  };
  absl::StatusOr<v1::InspectReply> Ask(const v1::InspectRequest& request,
                                       const std::vector<int>& fds,
                                       const std::atomic<bool>* cancelled) const;
  // What is remembered. Null: nothing, and the caller is to read the files and say EndTurn; whoever
  // asks for the same meanwhile waits for it. CANCELLED: while it waited.
  absl::StatusOr<std::shared_ptr<const CheckedJob>> RecallOrTakeTurn(
      const std::string& key, const std::atomic<bool>* cancelled) ABSL_LOCKS_EXCLUDED(mutex_);
  void EndTurn(const std::string& key) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remember(const std::string& key, const CheckedJob& job) ABSL_LOCKS_EXCLUDED(mutex_);

  const InspectSettings settings_;
  const FileAccess access_;
  absl::Mutex mutex_;
  std::map<std::string, Remembered> remembered_ ABSL_GUARDED_BY(mutex_);
  int64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<std::string> being_read_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace snug::server

#endif  // SERVER_INSPECT_INSPECTOR_H_
