#include "worker/link/worker_link.h"

#include <google/protobuf/io/coded_stream.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "worker/link/command_frames.h"
#include "worker/link/convert.h"

namespace snug::link {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kRedial = std::chrono::milliseconds(500);
constexpr auto kHeartbeat = std::chrono::seconds(5);   // The node calls a worker stale at 30 s.
constexpr auto kResultWait = std::chrono::seconds(1);  // result.json tells the node just the same.
constexpr size_t kMaxCheckpointReports =
    16;  // Waiting for the daemon; older ones it finds on disk.

class NoLink final : public WorkerLink {
 public:
  void ReportProgress(const train::TrainingProgress&, const MemoryReport&) override {}
  void ReportCheckpoint(const CheckpointReport&) override {}
  void ReportResult(const train::AttemptResult&) override {}
  Command command() const override { return Command::kNone; }
  std::optional<train::PlanOrder> TakePlanOrder() override { return std::nullopt; }
  void AnswerPlanOrder(const train::PlanAnswer&) override {}
  std::optional<train::PlanOrder> AskForSmallerPlan(const train::Shortage&) override {
    return std::nullopt;
  }
};

std::string Framed(const v1::WorkerEvent& event) {
  const std::string body = event.SerializeAsString();
  std::string framed(
      google::protobuf::io::CodedOutputStream::VarintSize32(static_cast<uint32_t>(body.size())),
      '\0');
  google::protobuf::io::CodedOutputStream::WriteVarint32ToArray(
      static_cast<uint32_t>(body.size()), reinterpret_cast<uint8_t*>(framed.data()));
  return framed + body;
}

// Of all threads.
double CpuSeconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

Command CommandOf(const v1::WorkerCommand::Stop& stop) {
  if (stop.keep()) return Command::kExportAndStop;
  return stop.checkpoint() ? Command::kCheckpointAndStop : Command::kStop;
}

class SocketLink final : public WorkerLink {
 public:
  explicit SocketLink(const train::AttemptOptions& attempt)
      : socket_path_(attempt.link_socket), wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    hello_.set_job_id(attempt.job_id);
    hello_.set_epoch(attempt.epoch);
    hello_.set_nonce(attempt.nonce);
    hello_.set_pid(getpid());
    hello_.mutable_plan();
    thread_ = std::thread([this] { Run(); });
  }

  ~SocketLink() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    closed_.notify_all();
    Wake();
    thread_.join();
    Disconnect();
    close(wake_);
  }

  void ReportProgress(const train::TrainingProgress& progress,
                      const MemoryReport& memory) override {
    v1::WorkerEvent event;
    *event.mutable_step()->mutable_progress() = ProgressTo(progress);
    event.mutable_step()->set_measured_peak_bytes(memory.measured_peak_bytes);
    event.mutable_step()->set_current_bytes(memory.current_bytes);
    for (const program::MemoryLook& look : memory.looks)
      *event.mutable_step()->add_looks() = LookTo(look);
    DriftTo(progress, *event.mutable_step());
    {
      const std::lock_guard lock(mutex_);
      *hello_.mutable_last() = event.step();
      progress_ = std::move(event);
    }
    Wake();
  }

  void ReportCheckpoint(const CheckpointReport& checkpoint) override {
    v1::WorkerEvent event;
    event.mutable_checkpoint()->set_global_step(checkpoint.global_step);
    event.mutable_checkpoint()->set_path(checkpoint.path);
    event.mutable_checkpoint()->set_manifest_sha256(checkpoint.manifest_sha256);
    event.mutable_checkpoint()->set_bytes(checkpoint.bytes);
    event.mutable_checkpoint()->set_seconds(checkpoint.seconds);
    {
      const std::lock_guard lock(mutex_);
      checkpoints_.push_back(std::move(event));
      if (checkpoints_.size() > kMaxCheckpointReports) checkpoints_.pop_front();
    }
    Wake();
  }

  void ReportResult(const train::AttemptResult& result) override {
    v1::WorkerEvent event;
    *event.mutable_finished()->mutable_result() = ResultTo(result);
    std::unique_lock lock(mutex_);
    result_ = std::move(event);
    Wake();
    sent_.wait_for(lock, kResultWait, [this] { return result_sent_; });
  }

  Command command() const override { return command_.load(); }

  std::optional<train::PlanOrder> TakePlanOrder() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(order_, std::nullopt);
  }

  void AnswerPlanOrder(const train::PlanAnswer& answer) override {
    v1::WorkerEvent event;
    *event.mutable_plan_changed() = AnswerTo(answer);
    {
      const std::lock_guard lock(mutex_);
      *hello_.mutable_plan() = event.plan_changed();
      answer_ = std::move(event);
    }
    Wake();
  }

  std::optional<train::PlanOrder> AskForSmallerPlan(const train::Shortage& shortage) override {
    v1::WorkerEvent event;
    event.mutable_shortage()->set_global_step(shortage.global_step);
    event.mutable_shortage()->set_message(shortage.message);
    std::unique_lock lock(mutex_);
    no_smaller_plan_ = false;
    *hello_.mutable_shortage() = event.shortage();
    shortage_ = std::move(event);
    Wake();
    answered_.wait_for(lock, kShortageWait, [this] {
      return order_.has_value() || no_smaller_plan_ || command_ != Command::kNone;
    });
    hello_.clear_shortage();
    shortage_.reset();
    return std::exchange(order_, std::nullopt);
  }

 private:
  void Run() {
    while (!Closing()) {
      if (socket_ < 0 && !Connect()) {
        Sleep(kRedial);
        continue;
      }
      if (!SendWaiting() || !Receive()) Disconnect();
    }
  }

  bool Closing() const {
    const std::lock_guard lock(mutex_);
    return closing_;
  }

  void Wake() const { (void)!eventfd_write(wake_, 1); }

  void Sleep(Clock::duration duration) {
    std::unique_lock lock(mutex_);
    closed_.wait_for(lock, duration, [this] { return closing_; });
  }

  bool Connect() {
    v1::WorkerEvent hello;
    {
      const std::lock_guard lock(mutex_);
      *hello.mutable_hello() = hello_;
    }
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (socket_path_.size() >= sizeof(address.sun_path)) return false;
    memcpy(address.sun_path, socket_path_.c_str(), socket_path_.size() + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      close(fd);
      return false;
    }
    socket_ = fd;
    received_.clear();
    if (Send(hello)) return true;
    Disconnect();
    return false;
  }

  void Disconnect() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }

  bool Send(const v1::WorkerEvent& event) {
    const std::string bytes = Framed(event);
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      sent += static_cast<size_t>(n);
    }
    last_sent_ = Clock::now();
    return true;
  }

  // The report that is due: checkpoints in order, then where the run stands, under which plan, last
  // how it ended.
  std::optional<v1::WorkerEvent> TakeReport() {
    const std::lock_guard lock(mutex_);
    if (!checkpoints_.empty()) {
      v1::WorkerEvent oldest = std::move(checkpoints_.front());
      checkpoints_.pop_front();
      return oldest;
    }
    if (progress_.has_value()) return std::exchange(progress_, std::nullopt);
    if (answer_.has_value()) return std::exchange(answer_, std::nullopt);
    if (shortage_.has_value()) return std::exchange(shortage_, std::nullopt);
    return std::exchange(result_, std::nullopt);
  }

  // It could not be sent: it waits again, unless a newer one has taken its place.
  void PutBack(v1::WorkerEvent report) {
    const std::lock_guard lock(mutex_);
    if (report.has_checkpoint()) {
      checkpoints_.push_front(std::move(report));
    } else if (report.has_finished()) {
      result_ = std::move(report);
    } else if (report.has_plan_changed() || report.has_shortage()) {  // Hello says it.
    } else if (!progress_.has_value()) {
      progress_ = std::move(report);
    }
  }

  bool SendWaiting() {
    while (std::optional<v1::WorkerEvent> report = TakeReport()) {
      if (!Send(*report)) {
        PutBack(*std::move(report));
        return false;
      }
      if (report->has_finished()) {
        const std::lock_guard lock(mutex_);
        result_sent_ = true;
        sent_.notify_all();
      }
    }
    if (Clock::now() - last_sent_ < kHeartbeat) return true;
    v1::WorkerEvent beat;
    {
      const std::lock_guard lock(mutex_);
      beat.mutable_heartbeat()->set_global_step(hello_.last().progress().global_step());
    }
    beat.mutable_heartbeat()->set_cpu_seconds(CpuSeconds());
    return Send(beat);
  }

  // Waits for a command, for a report to send, or for the next heartbeat. False: the socket is
  // gone.
  bool Receive() {
    pollfd fds[] = {{.fd = socket_, .events = POLLIN, .revents = 0},
                    {.fd = wake_, .events = POLLIN, .revents = 0}};
    const auto until = last_sent_ + kHeartbeat - Clock::now();
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(until).count() + 1;
    poll(fds, 2, static_cast<int>(std::max<int64_t>(ms, 0)));
    if (fds[1].revents != 0) {
      eventfd_t ignored;
      eventfd_read(wake_, &ignored);
    }
    if (fds[0].revents == 0) return true;
    char bytes[4096];
    const ssize_t n = recv(socket_, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n == 0) return false;
    received_.append(bytes, static_cast<size_t>(n));
    v1::WorkerCommand command;
    bool healthy = true;
    while (TakeCommand(received_, command, healthy)) Obey(command);
    return healthy;
  }

  void Obey(const v1::WorkerCommand& command) {
    if (command.has_change_plan()) return Heed(command.change_plan());
    const std::lock_guard lock(mutex_);
    no_smaller_plan_ |= command.has_no_smaller_plan();
    Command wanted = Command::kNone;
    if (command.has_refused()) wanted = Command::kRefused;
    if (command.has_stop()) wanted = CommandOf(command.stop());
    Command none = Command::kNone;
    if (wanted != Command::kNone) command_.compare_exchange_strong(none, wanted);
    answered_.notify_all();
  }

  // One that cannot be read is answered at once; one that has been answered is known by Hello.
  void Heed(const v1::PlanOrder& wanted) {
    absl::StatusOr<train::PlanOrder> order = OrderFrom(wanted);
    if (!order.ok())
      return AnswerPlanOrder(
          {.number = wanted.number(), .refusal = std::string(order.status().message())});
    const std::lock_guard lock(mutex_);
    if (order->number > hello_.plan().number()) order_ = *std::move(order);
    answered_.notify_all();
  }

  const std::string socket_path_;
  const int wake_;
  std::atomic<Command> command_{Command::kNone};

  mutable std::mutex mutex_;
  std::condition_variable sent_;
  std::condition_variable closed_;
  std::condition_variable answered_;  // What AskForSmallerPlan waits for.
  v1::WorkerEvent::Hello hello_;      // What follows is guarded by mutex_.
  bool closing_ = false;
  bool result_sent_ = false;
  bool no_smaller_plan_ = false;
  std::optional<train::PlanOrder> order_;
  std::optional<v1::WorkerEvent> progress_, answer_, shortage_;
  std::deque<v1::WorkerEvent> checkpoints_;
  std::optional<v1::WorkerEvent> result_;

  int socket_ = -1;  // What follows belongs to the thread.
  std::string received_;
  Clock::time_point last_sent_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<WorkerLink> WorkerLink::Dial(const train::AttemptOptions& attempt) {
  if (attempt.link_socket.empty()) return std::make_unique<NoLink>();
  return std::make_unique<SocketLink>(attempt);
}

}  // namespace snug::link
