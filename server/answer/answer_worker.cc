#include "server/answer/answer_worker.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/log.h"
#include "server/job/random_id.h"
#include "server/node/descriptors.h"
#include "server/node/framing.h"
#include "server/node/outcome.h"
#include "server/node/unix_socket.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kLook = absl::Milliseconds(100);   // Between looks at worker and client.
constexpr absl::Duration kEndsByItself = absl::Seconds(2);  // It notices that nobody listens.
constexpr absl::Duration kEndsWhenKilled = absl::Seconds(30);  // A process that is in the kernel.
constexpr absl::Duration kNonceWait = absl::Seconds(5);

// Whether there is something to read before the time is over.
bool AwaitBytes(int fd, absl::Duration wait) {
  pollfd asked = {fd, POLLIN, 0};
  return poll(&asked, 1, static_cast<int>(absl::ToInt64Milliseconds(wait))) > 0;
}

bool IsGone(ShimWatch& watch, absl::Duration patience) {
  const absl::Time until = absl::Now() + patience;
  while (watch.Look() != Liveness::kGone) {
    if (absl::Now() >= until) return false;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return true;
}

// The shim stays until it has reaped the worker; where there is none any more, nobody is left.
bool KillAll(ShimWatch& watch) {
  const absl::Time until = absl::Now() + kEndsWhenKilled;
  while (absl::Now() < until) {
    watch.SignalOthers(SIGKILL).IgnoreError();
    if (IsGone(watch, absl::Milliseconds(500))) return true;
  }
  return false;
}

}  // namespace

std::string AnsweringDir(const std::string& state_dir) { return state_dir + "/sampling"; }

absl::Status EndLeftAnswering(const std::string& state_dir) {
  const std::string folder = AnsweringDir(state_dir);
  std::error_code error;
  for (const auto& job : fs::directory_iterator(folder + "/jobs", error)) {
    const std::string id = job.path().filename().string();
    const auto watch = ShimWatch::Adopt(AttemptDir(folder, id, 1), /*shim=*/0);
    if (watch->Look() != Liveness::kGone && !KillAll(*watch))
      return absl::UnavailableError(absl::StrCat("a worker that answered prompts is left, of ", id,
                                                 ", and cannot be killed"));
  }
  fs::remove_all(folder, error);
  fs::create_directories(folder + "/jobs", error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make ", folder));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<AnswerWorker>> AnswerWorker::Start(const LauncherSettings& settings,
                                                                  const Device& device,
                                                                  const std::string& id,
                                                                  v1::Assignment assignment) {
  const std::string folder = AnsweringDir(settings.state_dir);
  const AttemptIdentity identity{
      .instance = settings.instance, .job = id, .epoch = 1, .nonce = RandomHex(32)};
  std::unique_ptr<AnswerWorker> worker(
      new AnswerWorker(AttemptDir(folder, id, identity.epoch), identity));
  worker->socket_path_ = absl::StrCat(folder, "/", id, ".sock");
  ASSIGN_OR_RETURN(worker->listener_, ListenUnix(worker->socket_path_, 0600));
  assignment.set_job_id(id);
  assignment.set_epoch(identity.epoch);
  assignment.set_nonce(identity.nonce);
  assignment.set_attempt_dir(worker->dir_);
  assignment.set_checkpoints_dir(CheckpointsDir(folder, id));
  assignment.mutable_sample()->set_socket(worker->socket_path_);
  ASSIGN_OR_RETURN(worker->shim_, LaunchAttempt(settings, device, assignment));
  worker->watch_ = std::make_unique<ShimWatch>(worker->dir_);
  worker->watch_->Follow(worker->shim_, /*just_started=*/true);
  return worker;
}

AnswerWorker::~AnswerWorker() { CloseSockets(); }

void AnswerWorker::CloseSockets() {
  for (int* fd : {&listener_, &socket_})
    if (*fd >= 0) close(std::exchange(*fd, -1));
  unlink(socket_path_.c_str());
}

bool AnswerWorker::End() {
  CloseSockets();
  if (watch_ != nullptr && !IsGone(*watch_, kEndsByItself) && !KillAll(*watch_)) return false;
  // Its lock is free: it has ended, or does so now.
  if (shim_ > 0) waitpid(shim_, nullptr, 0);
  std::error_code ignored;
  fs::remove_all(fs::path(dir_).parent_path().parent_path(), ignored);
  return true;
}

absl::Status AnswerWorker::Pump(const std::function<bool(v1::SampleChunk)>& take,
                                const std::function<bool()>& cancelled) {
  ASSIGN_OR_RETURN(socket_, AwaitDial(cancelled));
  FrameReader reader;
  char buffer[4096];
  while (!cancelled()) {
    if (!AwaitBytes(socket_, kLook)) continue;
    const ssize_t got = read(socket_, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return WhyItEnded();
    reader.Add({buffer, static_cast<size_t>(got)});
    std::string frame;
    while (true) {
      ASSIGN_OR_RETURN(const bool whole, reader.Next(frame));
      if (!whole) break;
      v1::SampleChunk chunk;
      if (!chunk.ParseFromString(frame))
        return absl::UnavailableError("the worker sent what is no message");
      const bool last = chunk.has_ended();
      if (!take(std::move(chunk))) return absl::CancelledError("nobody takes the answers");
      if (last) return absl::OkStatus();
    }
  }
  return absl::CancelledError("the client has gone");
}

// The worker dials as soon as it has started.
absl::StatusOr<int> AnswerWorker::AwaitDial(const std::function<bool()>& cancelled) {
  while (!cancelled()) {
    const bool gone = watch_->Look() == Liveness::kGone;  // Asked before: it may have dialled.
    if (AwaitBytes(listener_, kLook)) {
      const int fd = AcceptOrPause(listener_, SOCK_CLOEXEC);
      if (fd >= 0 && SaysItsNonce(fd)) return fd;
      if (fd >= 0) close(fd);
    } else if (gone) {
      return WhyItEnded();
    }
  }
  return absl::CancelledError("the client has gone");
}

// Its first frame; read byte by byte, so that nothing of the next is taken.
bool AnswerWorker::SaysItsNonce(int socket) {
  FrameReader reader(kMaxFirstFrameBytes);
  std::string frame;
  for (size_t bytes = 0; bytes < kMaxFirstFrameBytes; ++bytes) {
    char byte = 0;
    if (!AwaitBytes(socket, kNonceWait) || read(socket, &byte, 1) != 1) return false;
    reader.Add({&byte, 1});
    const absl::StatusOr<bool> whole = reader.Next(frame);
    if (!whole.ok()) return false;
    if (*whole) return frame == identity_.nonce;
  }
  return false;
}

absl::Status AnswerWorker::WhyItEnded() {
  if (!IsGone(*watch_, kEndsWhenKilled)) return absl::UnavailableError("the worker has hung up");
  const Outcome outcome = Judge(ReadExitRecord(dir_, identity_), ReadResult(dir_));
  const std::string why = outcome.error.message().empty() ? outcome.exit : outcome.error.message();
  spdlog::warn("a worker that answers, {}, has failed: {}", identity_.job, why);
  return WithReason(absl::UnavailableError(absl::StrCat("the worker has failed: ", why)),
                    "ANSWERING_FAILED");
}

}  // namespace snug::server
