// A daemon with failpoints over a state folder of its own, all of whose parts are at work, and what
// is done to that folder while no daemon has it.
#ifndef TESTS_FAULT_CRASH_FAILING_DAEMON_H_
#define TESTS_FAULT_CRASH_FAILING_DAEMON_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "snug/v1/service.grpc.pb.h"
#include "tests/fault/crash/child.h"
#include "tests/fault/crash/launcher.h"
#include "tests/fault/crash/programs.h"

namespace snug::crash {

// Nobody listens there: no call is heard, and none may be forgotten.
inline constexpr const char* kHook = "127.0.0.1:9";

class FailingDaemon {
 public:
  explicit FailingDaemon(Programs programs);
  ~FailingDaemon();  // Ends what it has started, workers as well. The folder stays if it is kept.

  // Starts it, and does not wait. `points`: of SNUG_FAILPOINT. With a launcher it does not start
  // workers itself.
  void Start(const std::string& points, bool with_launcher = false);
  // Until it serves; false: it has ended before.
  bool Serves();
  Child& process() { return process_; }
  v1::FineTuning::Stub& stub() { return *stub_; }

  // Of the failpoints that have acted since the beginning.
  std::map<std::string, int64_t> Hits() const;
  int64_t hits_bytes() const;  // Of the log of these.

  // How many attempts have a worker, by the locks that the workers hold.
  int64_t RunningWorkers() const;
  enum class Whom : uint8_t { kShims, kWorkers, kBoth, kOne };  // kOne: both of the newest attempt.
  void KillProcesses(Whom whom) const;

  // While it is not there.
  // Puts the store's own copy in its place with `snugd --restore`, with these failpoints, and then
  // again without any.
  absl::Status Restore(const std::string& points);
  // As large as it gets, nearly: the next line is one of a new file.
  void FillAuditLog() const;
  // What another history of the store could have left: a folder where the next attempt's goes.
  void PlantStaleFolders() const;
  // As a deletion leaves it that was killed before its commit.
  void MoveToTrash(const std::string& job) const;

  std::string JobDir(const std::string& job) const { return state_ + "/jobs/" + job; }
  const std::string& folder() const { return folder_; }
  const std::string& state() const { return state_; }
  void Keep() { kept_ = true; }

 private:
  std::vector<std::string> Command() const;

  const Programs programs_;
  std::string folder_, state_, socket_;
  Child process_;
  std::unique_ptr<Launcher> launcher_;
  std::unique_ptr<v1::FineTuning::Stub> stub_;
  bool kept_ = false;
};

}  // namespace snug::crash

#endif  // TESTS_FAULT_CRASH_FAILING_DAEMON_H_
