#include "server/inspect/inspector.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/data/sha256.h"
#include "server/data/sources.h"
#include "server/inspect/facts.h"
#include "server/inspect/user_files.h"
#include "server/inspect/wire.h"
#include "server/job/check_spec.h"
#include "server/job/errors.h"
#include "server/job/inherit_adapter.h"
#include "server/job/transient.h"
#include "server/job/weights_digest.h"
#include "server/node/process.h"

namespace snug::server {
namespace {

constexpr size_t kMaxRemembered = 32;  // A program of 1,024 layers has some 10 MB.
constexpr int kPollMs = 50;
constexpr absl::Duration kEndPatience = absl::Seconds(1);  // It has nothing left to do.
constexpr timeval kSendPatience = {.tv_sec = 10, .tv_usec = 0};

// What is wrong with the datasets, which nobody reads yet, beside what the files say.
absl::Status Joined(std::vector<Violation> found, const absl::Status& said) {
  if (found.empty() || !absl::IsInvalidArgument(said)) return said;
  for (const auto& [field, message] : FieldsOf(said))
    found.push_back({field, message, "", MayPass(said)});
  return InvalidRequest(found);
}

// What the files say does not depend on these: the job's name and place in the queue, whom it
// tells, where its rows lie, and values that its training alone uses. What `to` has none of stays
// so: of a default, and whether rows are evaluated, much may depend.
void SetWhatFilesDoNotKnow(const v1::JobSpec& from, v1::JobSpec& to) {
  to.set_display_name(from.display_name());
  to.set_priority(from.priority());
  *to.mutable_labels() = from.labels();
  to.set_webhook(from.webhook());
  if (!to.dataset().empty()) to.set_dataset(from.dataset());
  if (!to.eval_dataset().empty()) to.set_eval_dataset(from.eval_dataset());
  const v1::TrainingSpec& training = from.training();
  if (training.has_seed() && to.training().has_seed())
    to.mutable_training()->set_seed(training.seed());
  if (training.has_learning_rate() && to.training().has_learning_rate())
    to.mutable_training()->set_learning_rate(training.learning_rate());
}

v1::JobSpec WithoutWhatFilesDoNotKnow(v1::JobSpec spec) {
  v1::JobSpec none;
  none.set_dataset("/");
  none.set_eval_dataset("/");
  none.mutable_training()->set_seed(0);
  none.mutable_training()->set_learning_rate(0.0);
  SetWhatFilesDoNotKnow(none, spec);
  return spec;
}

absl::Status ReaderFailed(int status) {
  const std::string how = WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status))
                                              : absl::StrCat("exit code ", WEXITSTATUS(status));
  return InvalidRequest({{"spec.model",
                          absl::StrCat("its files could not be read within the memory and the ",
                                       "time for it: their reader ended with ", how),
                          "INSPECT_FAILED"}});
}

// How the process ended, which it is made to where it does not by itself.
int Reap(pid_t pid, absl::Duration patience) {
  int status = 0;
  for (const absl::Time end = absl::Now() + patience; absl::Now() < end;
       absl::SleepFor(absl::Milliseconds(2)))
    if (waitpid(pid, &status, WNOHANG) == pid) return status;
  kill(-pid, SIGKILL);
  waitpid(pid, &status, 0);
  return status;
}

// Appends the reply's bytes: all until the other end is closed.
absl::Status ReadAll(int socket, absl::Time deadline, const std::atomic<bool>* cancelled,
                     std::string& bytes) {
  std::vector<char> buffer(64 << 10);
  while (bytes.size() <= kMaxInspectFrame) {
    if (cancelled != nullptr && cancelled->load()) return absl::CancelledError("cancelled");
    if (absl::Now() > deadline) return absl::DeadlineExceededError("reading a model's files");
    pollfd end = {socket, POLLIN, 0};
    if (poll(&end, 1, kPollMs) <= 0) continue;
    const ssize_t got = recv(socket, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) break;
    if (got < 0 && errno != EINTR && errno != EAGAIN)
      return absl::ErrnoToStatus(errno, "cannot hear from snug-inspect");
    if (got > 0) bytes.append(buffer.data(), static_cast<size_t>(got));
  }
  return absl::OkStatus();
}

// Another process's word: it may fill in what the user left out, and name no other file.
absl::StatusOr<CheckedJob> Believe(const v1::InspectReply& reply, const v1::JobSpec& asked,
                                   const UserFiles& files, const std::string& model_dir) {
  const v1::JobSpec& spec = reply.spec();
  const bool same = spec.model() == asked.model() && SourcesKey(spec) == SourcesKey(asked) &&
                    spec.lora().init_adapter() == asked.lora().init_adapter() &&
                    spec.method() == asked.method() && CheckSpec(spec).empty();
  if (!same) return absl::InternalError("snug-inspect answered for another job");
  ASSIGN_OR_RETURN(const program::ModelConfig config, ConfigOf(reply.model()));
  CheckedJob job{.spec = spec, .model_dir = model_dir};
  job.opened = std::make_shared<const v1::OpenedFiles>(files.Opened());
  ASSIGN_OR_RETURN(program::Program program, program::BuildProgram(config, ModeOf(spec)));
  if (spec.sharing() != "none") job.weights_digest = WeightsDigest(program, *job.opened, model_dir);
  job.program = std::make_shared<const program::Program>(std::move(program));
  return job;
}

// Of a job that is new: the spec gets the folder in its adapter's place, or, where that is a
// checkpoint's, what its job was told of it.
absl::StatusOr<AdapterOrigin> InheritedAdapter(const Origins& origins, v1::JobSpec& spec) {
  const std::string named = spec.lora().init_adapter();
  const auto as_violation = [](const absl::Status& status) {
    if (status.ok() || IsTransient(status)) return status;
    return InvalidRequest(
        {{"spec.lora.init_adapter", std::string(status.message()), "BAD_ADAPTER"}});
  };
  const absl::StatusOr<AdapterOrigin> adapter = AdapterOriginOf(spec, origins);
  if (!adapter.ok()) return as_violation(adapter.status());
  if (!NamesJob(named)) return adapter;
  spec.mutable_lora()->set_init_adapter(adapter->dir);
  if (!adapter->checkpoint.empty())
    RETURN_IF_ERROR(as_violation(InheritLora(adapter->lora, named, *spec.mutable_lora())));
  return adapter;
}

}  // namespace

absl::StatusOr<CheckedJob> Inspector::Check(const v1::JobSpec& spec, const Origins& origins,
                                            const Order& order) {
  std::vector<Violation> found = CheckSpec(spec);
  if (!found.empty()) return InvalidRequest(found);
  found = access_.Check(spec, order.who, order.inputs);
  if (!found.empty()) return InvalidRequest(found);
  if (order.inputs == InputFiles::kNeeded)
    found = CheckDatasetFiles(spec, access_.ReachOf(order.who));
  const absl::StatusOr<CheckedJob> job = Read(spec, origins, order);
  if (!job.ok()) return Joined(std::move(found), job.status());
  if (!found.empty()) return InvalidRequest(found);
  return job;
}

absl::StatusOr<CheckedJob> Inspector::Read(const v1::JobSpec& asked, const Origins& origins,
                                           const Order& order) {
  const absl::StatusOr<ModelOrigin> model = ModelOriginOf(asked, origins);
  const std::string model_dir = model.ok() ? model->dir : "";
  v1::JobSpec spec = asked;
  AdapterOrigin adapter;
  if (order.inputs == InputFiles::kNeeded) {
    ASSIGN_OR_RETURN(adapter, InheritedAdapter(origins, spec));
  }
  ASSIGN_OR_RETURN(const UserFiles files,
                   UserFiles::Open({model_dir, NamesJob(asked.model())},
                                   {adapter.dir, NamesJob(asked.lora().init_adapter())},
                                   {.access = access_, .who = order.who}));
  const std::string key =
      Sha256Hex(absl::StrCat(WithoutWhatFilesDoNotKnow(spec).SerializeAsString(), "\n", model_dir,
                             "\n", static_cast<int>(order.inputs), "\n", files.Identity()));
  absl::StatusOr<CheckedJob> job = CheckedJob();
  ASSIGN_OR_RETURN(const std::shared_ptr<const CheckedJob> known,
                   RecallOrTakeTurn(key, order.cancelled));
  if (known != nullptr) {
    job = *known;
    SetWhatFilesDoNotKnow(spec, job->spec);
  } else {
    const absl::Cleanup end_turn = [&] { EndTurn(key); };
    job = ReadNow(spec, model, files, order);
    if (!job.ok()) return job;
    Remember(key, *job);
  }
  if (spec.lora().init_adapter() != asked.lora().init_adapter())
    job->spec.mutable_lora()->set_init_adapter(asked.lora().init_adapter());
  job->adapter_dir = adapter.dir;
  job->start_from = adapter.checkpoint.empty() ? model->checkpoint : adapter.checkpoint;
  return job;
}

absl::Status Inspector::OpenAdapter(const AdapterOrigin& adapter, const Principal& who,
                                    CheckedJob& job) const {
  ASSIGN_OR_RETURN(const UserFiles files,
                   UserFiles::Open({job.model_dir, NamesJob(job.spec.model())},
                                   {adapter.dir, NamesJob(job.spec.lora().init_adapter())},
                                   {.access = access_, .who = who}));
  job.opened = std::make_shared<const v1::OpenedFiles>(files.Opened());
  job.adapter_dir = adapter.dir;
  if (!adapter.checkpoint.empty()) job.start_from = adapter.checkpoint;
  return absl::OkStatus();
}

absl::StatusOr<CheckedJob> Inspector::ReadNow(const v1::JobSpec& spec,
                                              const absl::StatusOr<ModelOrigin>& model,
                                              const UserFiles& files, const Order& order) {
  if (order.on_read) order.on_read();
  const std::string model_dir = model.ok() ? model->dir : "";
  v1::InspectRequest request;
  *request.mutable_spec() = spec;
  request.set_model_dir(model_dir);
  if (!model.ok()) *request.mutable_model_error() = ErrorOf(model.status());
  request.set_inputs_done(order.inputs == InputFiles::kDone);
  for (const v1::InspectFile& file : files.files()) *request.add_files() = file;
  ASSIGN_OR_RETURN(const v1::InspectReply reply, Ask(request, files.fds(), order.cancelled));
  if (reply.has_error()) return StatusOf(reply.error());
  const std::shared_ptr<void> held = order.hold ? order.hold() : nullptr;
  return Believe(reply, spec, files, model_dir);
}

absl::StatusOr<v1::InspectReply> Inspector::Ask(const v1::InspectRequest& request,
                                                const std::vector<int>& fds,
                                                const std::atomic<bool>* cancelled) const {
  const absl::Time deadline = absl::Now() + settings_.timeout;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return absl::UnavailableError("no socket for snug-inspect now");
  const absl::Cleanup close_ours = [&] { close(ends[0]); };
  absl::Cleanup close_theirs = [&] { close(ends[1]); };
  setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &kSendPatience, sizeof kSendPatience);
  const absl::StatusOr<pid_t> pid = Spawn({.argv = {settings_.program},
                                           .stderr_fd = STDERR_FILENO,
                                           .passed_fds = {ends[1]},
                                           .own_group = true});
  if (!pid.ok()) return absl::UnavailableError(pid.status().message());
  std::move(close_theirs).Invoke();
  absl::Status sent = SendMessage(ends[0], request);
  if (sent.ok()) sent = SendDescriptors(ends[0], fds);
  shutdown(ends[0], SHUT_WR);
  std::string bytes;
  const absl::Status heard = ReadAll(ends[0], deadline, cancelled, bytes);
  const int status = Reap(*pid, heard.ok() ? kEndPatience : absl::ZeroDuration());
  if (absl::IsCancelled(heard)) return heard;
  // No memory to send it with, and no fault of the reader's.
  if (absl::IsResourceExhausted(sent)) return sent;
  // A reader that has ended already says in its exit status what it ended of.
  v1::InspectReply reply;
  if (sent.ok() && heard.ok() && ParseFrame(bytes, reply).ok()) return reply;
  return ReaderFailed(status);
}

absl::StatusOr<std::shared_ptr<const CheckedJob>> Inspector::RecallOrTakeTurn(
    const std::string& key, const std::atomic<bool>* cancelled) {
  const auto is_free = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !being_read_.contains(key);
  };
  absl::MutexLock lock(&mutex_);
  while (!mutex_.AwaitWithTimeout(absl::Condition(&is_free), absl::Milliseconds(kPollMs)))
    if (cancelled != nullptr && cancelled->load()) return absl::CancelledError("cancelled");
  const auto found = remembered_.find(key);
  if (found == remembered_.end()) {
    being_read_.insert(key);
    return nullptr;
  }
  found->second.used = ++uses_;
  return found->second.job;
}

void Inspector::EndTurn(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  being_read_.erase(key);
}

void Inspector::Remember(const std::string& key, const CheckedJob& job) {
  absl::MutexLock lock(&mutex_);
  if (remembered_.size() >= kMaxRemembered) {
    const auto older = [](const auto& a, const auto& b) { return a.second.used < b.second.used; };
    remembered_.erase(std::min_element(remembered_.begin(), remembered_.end(), older));
  }
  remembered_[key] = {std::make_shared<const CheckedJob>(job), ++uses_};
}

}  // namespace snug::server
