// fake-worker ASSIGNMENT: a worker that trains nothing and speaks the link. What it does is said in
// the job's display_name:
//   steps=N step_ms=N        how many steps (else training.max_steps) of how long (else 20)
//   slow=N slow_now=1        says that steps take so many times what the plan predicts (else 10
//   ms);
//                            with the second, while a file "slow" is beside its model's folder, and
//                            else what the plan predicts
//   load_ms=N hello_at=S     loads for so long first; dials only when that step is done
//   crash_at=S nan_at=S oom_at=S full_at=S
//                            kills itself, fails as the user's error, runs out of memory, finds the
//                            disk full there
//   short_at=S short_times=N that step does not fit under so many plans (else one); it asks for a
//                            smaller one, and runs out of memory where there is none
//   only_epoch=E             the misfortune above happens in that attempt alone (else in each)
//   silent=1 deaf=1          never says Hello; ignores Stop and SIGTERM
//   no_output=1 garbage=S    ends as finished without an output; sends nonsense at that step
//   hang_at=S absurd_at=S    from there on only beats; says there that it is at step 2^62
//   grow_at=S grow_mb=N      takes so much more memory at that step
//   stuck_at=S               opens there stuck/file, beside its model's folder
//   files_at=S               opens files there until it may open no more, and fails with that
//   fork_at=S                starts processes there until it may start no more, and goes on; they
//                            sleep for ten minutes
//   drift_at=S drift_permille=N
//                            has measured there, from then on, a relative error of so much in int8
//   beats=N print_mb=N       sends so many heartbeats, prints so much with every step
//   export_ms=N              takes so long to export
//   order_ms=N               waits so long before it obeys an order to change its plan
//   order_dies=1 order_refused=1 order_lies=1
//                            kills itself instead, refuses, says it holds a byte too many; the
//                            first in the attempt of only_epoch alone
// `fake-worker --measure-context [gpu:N]` takes twice as much of a GPU as of a CPU.
// `fake-worker --write-model DIR` writes the model that such jobs name.
// Where another worker of its job lives it writes both into the state folder's `doubled`, and ends:
// there must never be two.
// Like the real one it goes on without a daemon and dials again, keeps metrics.jsonl, saves
// checkpoints with manifests. What it has for weights is a digest over all steps in their order: a
// step that is left out, or made twice, shows in the output.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "proto/snug/json.h"
#include "server/data/sha256.h"
#include "server/failpoint.h"
#include "server/job/check_job.h"
#include "server/node/framing.h"
#include "snug/v1/worker.pb.h"
#include "tests/server/testing/tiny_model.h"
#include "worker/program/model_config.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

constexpr int kFinished = 0, kStopped = 3, kFailed = 4;
constexpr int64_t kContextBytes = 8 << 20;

class Script {
 public:
  explicit Script(const std::string& text) {
    for (absl::string_view word : absl::StrSplit(text, ' ')) {
      const std::pair<std::string, std::string> parts =
          absl::StrSplit(word, absl::MaxSplits('=', 1));
      int64_t value = 0;
      if (absl::SimpleAtoi(parts.second, &value)) values_[parts.first] = value;
    }
  }
  int64_t operator()(const std::string& name, int64_t absent = 0) const {
    const auto found = values_.find(name);
    return found == values_.end() ? absent : found->second;
  }

 private:
  std::map<std::string, int64_t> values_;
};

int Sleep(void*) {
  const timespec span = {.tv_sec = 600, .tv_nsec = 0};
  return nanosleep(&span, nullptr);
}

class FakeWorker {
 public:
  explicit FakeWorker(v1::Assignment assignment)
      : assignment_(std::move(assignment)), script_(assignment_.spec().display_name()) {
    if (script_("deaf")) signal(SIGTERM, SIG_IGN);
    steps_ = script_("steps", std::max<int64_t>(1, assignment_.spec().training().max_steps()));
  }

  int Run() {
    if (!IsAlone()) return kFailed;
    Resume();
    std::cout << "fake worker, from step " << step_ << std::endl;
    Dial();
    Listen(absl::Milliseconds(script_("load_ms")));
    if (stopped_ && keeps_ && step_ == 0)
      return Finish(v1::WorkerResult::OUTCOME_STOPPED, kStopped);
    while (step_ < steps_ && !(stopped_ && keeps_)) {
      Dial();
      if (const int ended = DoStep(); ended >= 0) return ended;
      Listen(absl::Milliseconds(script_("step_ms", 20)));
      ChangePlan();
      if (stopped_ && keeps_) break;
      if (stopped_ && saves_) Checkpoint();
      if (stopped_) return Finish(v1::WorkerResult::OUTCOME_STOPPED, kStopped);
    }
    if (!script_("no_output")) Export();
    return Finish(script_("no_output") ? v1::WorkerResult::OUTCOME_UNSPECIFIED
                                       : v1::WorkerResult::OUTCOME_SUCCEEDED,
                  kFinished);
  }

 private:
  // Held as long as this process lives.
  bool IsAlone() {
    const std::string job = fs::path(assignment_.checkpoints_dir()).parent_path().string();
    const int fd = open((job + "/one-worker").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return true;  // The job has been deleted meanwhile.
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    std::ofstream doubled(fs::path(job).parent_path().parent_path().string() + "/doubled",
                          std::ios::app);
    doubled << assignment_.job_id() << " epoch " << assignment_.epoch() << std::endl;
    return false;
  }

  void Resume() {
    metrics_.open(assignment_.attempt_dir() + "/metrics.jsonl");
    if (assignment_.resume_from().empty()) return;
    const auto manifest =
        nlohmann::json::parse(ReadText(assignment_.resume_from() + "/MANIFEST.json"));
    step_ = resumed_from_ = manifest["step"].get<int64_t>();
    weights_ = ReadText(assignment_.resume_from() + "/weights");
    std::ifstream before(assignment_.previous_metrics());
    for (std::string line; std::getline(before, line);)
      if (nlohmann::json::parse(line)["global_step"].get<int64_t>() <= step_)
        metrics_ << line << "\n";
  }

  // -1: goes on.
  int DoStep() {
    if (!FindsRoom())
      return Fail(v1::WorkerResult::FAILURE_CLASS_OUT_OF_MEMORY, "OUT_OF_MEMORY",
                  "the step does not fit");
    ++step_;
    weights_ = absl::StrCat("step ", step_, " ", Sha256Hex(weights_));
    const bool now = script_("only_epoch", assignment_.epoch()) == assignment_.epoch();
    if (now && script_("crash_at") == step_) kill(getpid(), SIGKILL);
    if (now && script_("nan_at") == step_)
      return Fail(v1::WorkerResult::FAILURE_CLASS_USER, "NON_FINITE", "the loss is NaN");
    if (now && script_("oom_at") == step_)
      return Fail(v1::WorkerResult::FAILURE_CLASS_OUT_OF_MEMORY, "OUT_OF_MEMORY",
                  "the cap was hit");
    if (now && script_("full_at") == step_)
      return Fail(v1::WorkerResult::FAILURE_CLASS_INFRASTRUCTURE, "DISK_FULL",
                  "no space left on device");
    if (now && script_("files_at") == step_) return OpenFiles();
    if (now && script_("fork_at") == step_) StartProcesses();
    if (now && script_("stuck_at") == step_) ReadText(StuckFile());
    if (now && script_("grow_at") == step_) Grow(script_("grow_mb") << 20);
    if (now && script_("garbage") == step_) Write("\xff\xff\xff\xff\xff\xff");
    if (now && script_("absurd_at") == step_) Boast();
    if (now && script_("hang_at") == step_) return Hang();
    for (int64_t beat = 0; beat < script_("beats"); ++beat) Beat();
    for (int64_t mb = 0; mb < script_("print_mb"); ++mb) std::cout << std::string(1 << 20, '.');
    metrics_ << nlohmann::json{{"global_step", step_}, {"loss", Loss()}}.dump() << std::endl;
    v1::WorkerEvent event;
    *event.mutable_step() = Report();
    Send(event);
    const int64_t save = assignment_.spec().training().save_steps();
    if (save > 0 && step_ % save == 0) Checkpoint();
    return -1;
  }

  // For the next step, if need be under another plan.
  bool FindsRoom() {
    const bool now = script_("only_epoch", assignment_.epoch()) == assignment_.epoch();
    if (!now || script_("short_at") != step_ + 1) return true;
    for (int64_t left = script_("short_times", 1); left > 0; --left) {
      v1::WorkerEvent event;
      event.mutable_shortage()->set_global_step(step_);
      event.mutable_shortage()->set_message("the cap is hit");
      Send(event);
      while (!order_ && !no_smaller_plan_ && !stopped_) Listen(absl::Milliseconds(5));
      if (!order_) return false;
      ChangePlan();
    }
    return true;
  }

  // At once, not page by page as it is touched.
  static void Grow(int64_t bytes) {
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
    mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  }

  std::string StuckFile() const {
    return fs::path(assignment_.spec().model()).parent_path() / "stuck" / "file";
  }

  int OpenFiles() {
    int kept = -1;
    for (int fd = kept; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) kept = fd;
    const std::string message = std::strerror(errno);
    close(kept);  // The result is a file, too.
    return Fail(v1::WorkerResult::FAILURE_CLASS_USER, "NO_FILES", message.c_str());
  }

  // They share this one's memory: of as many copies it would be the memory that ends first.
  static void StartProcesses() {
    constexpr size_t kMost = 6000;  // Where nothing keeps it to fewer.
    constexpr size_t kStackBytes = 16 << 10;
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* stacks = mmap(nullptr, kMost * kStackBytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
    if (stacks == MAP_FAILED) return;
    size_t started = 0;
    for (char* stack = static_cast<char*>(stacks); started < kMost; ++started) {
      stack += kStackBytes;  // It grows down from here.
      if (clone(Sleep, stack, CLONE_VM | SIGCHLD, nullptr) < 0) break;
    }
    const char* why = started < kMost ? std::strerror(errno) : "it wants no more";
    std::cout << "started " << started << " processes: " << why << std::endl;
  }

  void Boast() {
    v1::WorkerEvent event;
    *event.mutable_step() = Report();
    event.mutable_step()->mutable_progress()->set_global_step(int64_t{1} << 62);
    Send(event);
    Listen(absl::Milliseconds(200));  // Until it is heard: the next report would take its place.
  }

  void Beat() {
    v1::WorkerEvent event;
    event.mutable_heartbeat()->set_global_step(step_);
    event.mutable_heartbeat()->set_cpu_seconds(1.0);
    Send(event);
  }

  // As if the training thread waited for ever; the link lives, and a stop is not obeyed.
  int Hang() {
    while (true) {
      Dial();
      Beat();
      Listen(absl::Milliseconds(100));
    }
  }

  // Holds what the plan needs, to the byte.
  void ChangePlan() {
    if (!order_) return;
    if (script_("order_ms")) Listen(absl::Milliseconds(script_("order_ms")));
    const bool now = script_("only_epoch", assignment_.epoch()) == assignment_.epoch();
    if (now && script_("order_dies")) kill(getpid(), SIGKILL);
    answer_.set_number(order_->number());
    answer_.set_global_step(step_);
    answer_.set_current_bytes(order_->bytes() + script_("order_lies"));
    if (script_("order_refused"))
      answer_.set_refusal("it likes its plan");
    else
      predicted_s_ = order_->plan().step_seconds();
    order_.reset();
    v1::WorkerEvent event;
    *event.mutable_plan_changed() = answer_;
    Send(event);
  }

  double Slowness() const {
    const fs::path sign = fs::path(assignment_.spec().model()).parent_path() / "slow";
    if (script_("slow_now") && !fs::exists(sign)) return 1.0;
    return static_cast<double>(script_("slow"));
  }

  double Loss() const { return 4.0 / static_cast<double>(step_); }

  v1::Progress Progress() const {
    v1::Progress progress;
    progress.set_global_step(step_);
    progress.set_max_steps(steps_);
    progress.set_loss(Loss());
    progress.set_num_tokens(step_ * 10);
    const double slow = Slowness();
    progress.set_step_seconds(slow > 0 ? slow * predicted_s_ : 0.01);
    progress.set_resumed_from_step(resumed_from_);
    return progress;
  }

  v1::WorkerEvent::Step Report() const {
    v1::WorkerEvent::Step step;
    *step.mutable_progress() = Progress();
    step.set_measured_peak_bytes(kContextBytes + 1);
    step.add_looks()->set_counted_bytes(kContextBytes + 1);
    const int64_t measured = script_("drift_at");
    const bool now = script_("only_epoch", assignment_.epoch()) == assignment_.epoch();
    if (!now || measured == 0 || step_ < measured) return step;
    v1::Drift& drift = (*step.mutable_drift())["int8"];
    drift.set_cosine(0.5);
    drift.set_relative_error(static_cast<double>(script_("drift_permille")) / 1000);
    drift.set_global_step(measured);
    drift.set_tokens(32);
    return step;
  }

  void Checkpoint() {
    const std::string dir = absl::StrFormat("%s/step-%06d.e%d", assignment_.checkpoints_dir(),
                                            step_, assignment_.epoch());
    if (fs::exists(dir)) return;  // Told to stop at a step that it saves anyway.
    fs::create_directories(dir + ".tmp");
    WriteText(dir + ".tmp/weights", weights_);
    FAILPOINT("checkpoint.weights");
    const std::string manifest =
        nlohmann::json{
            {"schema", 1},
            {"step", step_},
            {"epoch", assignment_.epoch()},
            {"files", {{"weights", {{"bytes", weights_.size()}, {"sha256", Sha256Hex(weights_)}}}}}}
            .dump();
    WriteText(dir + ".tmp/MANIFEST.json", manifest);
    FAILPOINT("checkpoint.manifest");
    fs::rename(dir + ".tmp", dir);
    FAILPOINT("checkpoint.renamed");
    v1::WorkerEvent event;
    event.mutable_checkpoint()->set_global_step(step_);
    event.mutable_checkpoint()->set_path(dir);
    event.mutable_checkpoint()->set_manifest_sha256(Sha256Hex(manifest));
    Send(event);
  }

  void Export() {
    Listen(absl::Milliseconds(script_("export_ms")));
    const v1::JobSpec& spec = assignment_.spec();
    const std::string dir = assignment_.attempt_dir() + "/output";
    fs::create_directories(dir);
    const auto config = program::ReadModelConfig(spec.model());
    const auto program = program::BuildProgram(config.value(), ModeOf(spec)).value();
    if (spec.method() == v1::JobSpec::METHOD_LORA) {
      WriteText(dir + "/adapter_config.json", nlohmann::json{{"trained", weights_}}.dump());
      WriteParameters(dir + "/adapter_model.safetensors", program, Holds::kAdapter);
    } else {
      fs::copy_file(spec.model() + "/config.json", dir + "/config.json");
      WriteParameters(dir + "/model.safetensors", program, Holds::kBase);
    }
    metrics_.close();
    fs::copy_file(assignment_.attempt_dir() + "/metrics.jsonl", dir + "/metrics.jsonl");
  }

  int Fail(v1::WorkerResult::FailureClass failure, const char* reason, const char* message) {
    result_.set_failure_class(failure);
    result_.mutable_error()->set_reason(reason);
    result_.mutable_error()->set_message(absl::StrCat(message, " at step ", step_));
    return Finish(v1::WorkerResult::OUTCOME_FAILED, kFailed);
  }

  int Finish(v1::WorkerResult::Outcome outcome, int exit_code) {
    if (outcome == v1::WorkerResult::OUTCOME_UNSPECIFIED) return exit_code;
    result_.set_outcome(outcome);
    *result_.mutable_progress() = Progress();
    result_.set_measured_peak_bytes(Report().measured_peak_bytes());
    WriteText(assignment_.attempt_dir() + "/result.json.tmp", MessageToJson(result_)->dump());
    FAILPOINT("result.rename");
    fs::rename(assignment_.attempt_dir() + "/result.json.tmp",
               assignment_.attempt_dir() + "/result.json");
    FAILPOINT("result.renamed");
    return exit_code;
  }

  void Dial() {
    if (fd_ >= 0 || script_("silent") || step_ < script_("hello_at")) return;
    fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, assignment_.link_socket().c_str(), sizeof address.sun_path - 1);
    if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return HangUp();
    v1::WorkerEvent event;
    v1::WorkerEvent::Hello& hello = *event.mutable_hello();
    hello.set_job_id(assignment_.job_id());
    hello.set_epoch(assignment_.epoch());
    hello.set_nonce(assignment_.nonce());
    hello.set_pid(getpid());
    if (step_ > resumed_from_) *hello.mutable_last() = Report();
    *hello.mutable_plan() = answer_;
    Send(event);
  }

  void HangUp() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

  void Send(const v1::WorkerEvent& event) { Write(Frame(event.SerializeAsString())); }

  void Write(const std::string& bytes) {
    if (fd_ >= 0 && send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) HangUp();
  }

  void Listen(absl::Duration duration) {
    const absl::Time end = absl::Now() + duration;
    while (absl::Now() < end) {
      pollfd set = {fd_, POLLIN, 0};
      const auto left = static_cast<int>(absl::ToInt64Milliseconds(end - absl::Now()));
      if (poll(&set, 1, std::max(left, 1)) <= 0 || set.revents == 0) continue;
      char buffer[4096];
      const ssize_t got = read(fd_, buffer, sizeof buffer);
      if (got <= 0) {
        HangUp();
        continue;
      }
      reader_.Add({buffer, static_cast<size_t>(got)});
      Obey();
    }
  }

  void Obey() {
    std::string message;
    while (reader_.Next(message).value()) {
      v1::WorkerCommand command;
      command.ParseFromString(message);
      if (command.has_change_plan()) {
        if (command.change_plan().number() > answer_.number()) order_ = command.change_plan();
        continue;
      }
      no_smaller_plan_ |= command.has_no_smaller_plan();
      const bool ends = command.has_stop() || command.has_refused();
      stopped_ |= ends && !script_("deaf");
      saves_ = command.stop().checkpoint();
      keeps_ = command.stop().keep();
    }
  }

  const v1::Assignment assignment_;
  const Script script_;
  std::ofstream metrics_;
  v1::WorkerResult result_;
  std::optional<v1::PlanOrder> order_;
  v1::WorkerEvent::PlanChanged answer_;  // The last one.
  FrameReader reader_;
  std::string weights_ = "step 0";  // "step N DIGEST", where the digest is that of step N - 1's.
  double predicted_s_ = assignment_.plan().step_seconds();
  int64_t step_ = 0;
  int64_t steps_ = 0;
  int64_t resumed_from_ = 0;
  int fd_ = -1;
  bool stopped_ = false;
  bool no_smaller_plan_ = false;
  bool saves_ = false;  // Before it stops.
  bool keeps_ = false;  // Exports instead.
};

int PrintFacts(const std::string& device) {
  const int64_t bytes = device.starts_with("gpu:") ? 2 * kContextBytes : kContextBytes;
  std::cout << nlohmann::json{{"context_bytes", bytes}}.dump() << std::endl;
  return 0;
}

int Main(const std::string& argument) {
  v1::Assignment assignment;
  if (!assignment.ParseFromString(ReadText(argument))) return 1;
  return FakeWorker(std::move(assignment)).Run();
}

}  // namespace
}  // namespace snug::server

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--measure-context") return snug::server::PrintFacts(argc > 2 ? argv[2] : "cpu:0");
  if (argc == 3 && first == "--write-model") {
    snug::server::WriteTinyModel(argv[2]);
    return 0;
  }
  return argc == 2 ? snug::server::Main(first) : 64;
}
