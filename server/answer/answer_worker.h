// One worker that answers: its socket, its process, its end. It never outlives what this object is
// a part of: who listens goes away, and the worker with him; one that does not is killed.
#ifndef SERVER_ANSWER_ANSWER_WORKER_H_
#define SERVER_ANSWER_ANSWER_WORKER_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/node/attempt_files.h"
#include "server/node/launcher.h"
#include "server/node/shim_watch.h"
#include "snug/v1/sample.pb.h"
#include "snug/v1/worker.pb.h"

namespace snug::server {

// Folders and sockets of answering workers: <state>/sampling/jobs/<id>/attempts/1, .../<id>.sock.
std::string AnsweringDir(const std::string& state_dir);

// Kills what an earlier life of the daemon has left there, and removes it. Before anything is
// placed: nobody remembers the bytes that such workers were promised. UNAVAILABLE: one stays.
absl::Status EndLeftAnswering(const std::string& state_dir);

class AnswerWorker {
 public:
  // `assignment` lacks what this fills in: id, nonce, socket, folders.
  static absl::StatusOr<std::unique_ptr<AnswerWorker>> Start(const LauncherSettings& settings,
                                                             const Device& device,
                                                             const std::string& id,
                                                             v1::Assignment assignment);
  ~AnswerWorker();
  AnswerWorker(const AnswerWorker&) = delete;
  AnswerWorker& operator=(const AnswerWorker&) = delete;

  // Gives every chunk to `take` as it comes, until the last, or until `take` is false or
  // `cancelled` true. UNAVAILABLE: the worker has ended before, with why.
  absl::Status Pump(const std::function<bool(v1::SampleChunk)>& take,
                    const std::function<bool()>& cancelled);

  // Nothing of it is left when this is true.
  bool End();

 private:
  AnswerWorker(std::string dir, AttemptIdentity identity)
      : dir_(std::move(dir)), identity_(std::move(identity)) {}
  absl::StatusOr<int> AwaitDial(const std::function<bool()>& cancelled);
  bool SaysItsNonce(int socket);
  absl::Status WhyItEnded();
  void CloseSockets();

  const std::string dir_;
  const AttemptIdentity identity_;
  std::string socket_path_;
  int listener_ = -1, socket_ = -1;
  pid_t shim_ = 0;
  std::unique_ptr<ShimWatch> watch_;
};

}  // namespace snug::server

#endif  // SERVER_ANSWER_ANSWER_WORKER_H_
