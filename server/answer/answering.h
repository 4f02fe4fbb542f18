// Answers prompts with the models of jobs: each request has a thread here, and a worker of its own
// on bytes that the scheduler lends it. What goes wrong with one is told to its client, and touches
// nobody else.
#ifndef SERVER_ANSWER_ANSWERING_H_
#define SERVER_ANSWER_ANSWERING_H_

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/answer/answer_stream.h"
#include "server/answer/asked_model.h"
#include "server/data/prepare.h"
#include "server/inspect/inspector.h"
#include "server/node/launcher.h"
#include "server/place/devices.h"
#include "server/scheduler/lend.h"
#include "server/scheduler/scheduler.h"

namespace snug::server {

// Each may run a tokenizer with its whole memory limit, and takes threads of a device.
inline constexpr size_t kMaxAnswering = 8;

struct AnsweringParts {
  const JobIndex& index;
  Preparer& preparer;
  Inspector& inspector;
  Scheduler& scheduler;
  LauncherSettings launcher;  // With the store's instance.
  std::vector<Device> devices;
};

class Answering {
 public:
  explicit Answering(AnsweringParts parts) : parts_(std::move(parts)) {}
  ~Answering() { Stop(); }

  // `request` is checked and has the job's whole id. RESOURCE_EXHAUSTED: kMaxAnswering run.
  absl::StatusOr<std::shared_ptr<AnswerStream>> Start(v1::SampleRequest request)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends every worker; before the scheduler is drained.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Running {
    std::thread thread;
    std::shared_ptr<AnswerStream> stream;
    std::atomic<bool> over{false};
  };
  void Answer(const v1::SampleRequest& request, AnswerStream& stream);
  absl::Status Run(const v1::SampleRequest& request, AnswerStream& stream);
  absl::StatusOr<Lent> Borrow(const std::string& id, const AskedModel& asked, int64_t prompt_tokens,
                              int64_t new_tokens);
  absl::Status RunWorker(const std::string& id, const Lent& lent, v1::Assignment assignment,
                         AnswerStream& stream);
  void JoinOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const AnsweringParts parts_;
  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::list<Running> running_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace snug::server

#endif  // SERVER_ANSWER_ANSWERING_H_
