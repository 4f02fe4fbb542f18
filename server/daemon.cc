#include "server/daemon.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"
#include "proto/snug/version.h"
#include "server/answer/answer_worker.h"
#include "server/api/backup.h"
#include "server/config.h"
#include "server/http/https_client.h"
#include "server/job/errors.h"
#include "server/job/log.h"
#include "server/node/attempt_files.h"
#include "server/node/delegated_group.h"
#include "server/node/descriptors.h"
#include "server/node/forked_child.h"
#include "server/node/known_gpus.h"
#include "server/node/launcher.h"
#include "server/node/local_disk.h"
#include "server/node/local_node.h"
#include "server/node/measure.h"
#include "server/node/unix_socket.h"
#include "server/place/devices.h"
#include "server/place/host_memory.h"

namespace snug::server {
namespace {

constexpr absl::Duration kDrainPatience = absl::Seconds(10);
constexpr int kWatchdogSeconds =
    18;  // gRPC's Shutdown of this version may never return (upstream 39114).
constexpr int kApiThreads = 4;
constexpr absl::Duration kBetweenPortTries = absl::Seconds(1);
constexpr int64_t kMaxPrepares = 64;
constexpr absl::Duration kBetweenExaminations = absl::Hours(1);
constexpr int kCheckThreads = 3;  // One stays for others while all previews that may run do.

sigset_t EndSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

// Memory that one flood of calls has taken goes back to the machine, instead of staying in an arena
// of each thread; the main arena grows by whole MiB.
void SetUpMemory() {
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  mallopt(M_TRIM_THRESHOLD, 1 << 20);
  mallopt(M_TOP_PAD, 1 << 20);
}

void SetUpProcess() {
  SetUpMemory();
  const sigset_t set = EndSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  for (int ignored : {SIGPIPE, SIGHUP, SIGUSR1, SIGUSR2}) signal(ignored, SIG_IGN);
  const int descriptors = ReserveDescriptors();
  if (descriptors < kFewDescriptors)
    spdlog::warn("this process may open {} files, which is few: some clients may be refused",
                 descriptors);
}

absl::Status MakeFolder(const std::string& dir, mode_t mode) {
  if (mkdir(dir.c_str(), mode) == 0) return absl::OkStatus();
  if (errno == EEXIST) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(dir).parent_path(), error);
  if (mkdir(dir.c_str(), mode) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", dir));
}

absl::StatusOr<int> LockState(const std::string& dir) {
  const std::string path = dir + "/LOCK";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  if (!SoonSo([fd] { return flock(fd, LOCK_EX | LOCK_NB) == 0; })) {
    const std::string owner = ReadSmallFile(path, 64).value_or("");
    close(fd);
    return absl::UnavailableError(absl::StrCat("state directory ", dir,
                                               " is in use by snugd with pid ",
                                               absl::StripAsciiWhitespace(owner)));
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (TEMP_FAILURE_RETRY(ftruncate(fd, 0)) != 0 ||
      TEMP_FAILURE_RETRY(pwrite(fd, pid.data(), pid.size(), 0)) < 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  return fd;
}

// How many datasets are prepared at a time: each may take its whole memory limit.
absl::StatusOr<FairPool::Threads> PreparesAtATime(const v1::PrepareLimits& limits,
                                                  int64_t each_bytes) {
  if (limits.total_memory().empty()) return FairPool::Threads{.any = 1, .small = 1};
  ASSIGN_OR_RETURN(const int64_t total, ParseBytes(limits.total_memory()));
  if (each_bytes <= 0 || total / each_bytes < 2)
    return absl::InvalidArgumentError(absl::StrCat(
        "prepare.total_memory ", limits.total_memory(), " is less than twice ", "prepare.memory ",
        limits.memory(), ": a large and a small dataset are ", "prepared at a time"));
  return FairPool::Threads{.any = static_cast<int>(std::min(total / each_bytes, kMaxPrepares)) - 1,
                           .small = 1};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Create(const v1::DaemonConfig& config) {
  SetUpProcess();
  RETURN_IF_ERROR(BootId().status());  // By it attempts are told from those of earlier boots.
  std::unique_ptr<Daemon> daemon(new Daemon(config));
  RETURN_IF_ERROR(daemon->TakeState());
  if (!config.restore().empty()) {
    RETURN_IF_ERROR(RestoreStore(config.state_dir(), config.restore()));
    return absl::OutOfRangeError(absl::StrCat("restored ", config.restore()));
  }
  RETURN_IF_ERROR(daemon->Build());
  return daemon;
}

Daemon::~Daemon() {
  Shutdown();
  if (lock_ >= 0) close(lock_);
}

absl::Status Daemon::TakeState() {
  RETURN_IF_ERROR(MakeFolder(config_.state_dir(), 0700));
  RETURN_IF_ERROR(CheckLocalDisk(config_.state_dir()));
  ASSIGN_OR_RETURN(lock_, LockState(config_.state_dir()));
  RETURN_IF_ERROR(MakeFolder(config_.state_dir() + "/datasets", 0700));
  RETURN_IF_ERROR(MakeFolder(config_.state_dir() + "/jobs", 0700));
  const std::string folder = std::filesystem::path(config_.socket()).parent_path().string();
  RETURN_IF_ERROR(MakeFolder(folder, geteuid() == 0 ? 0755 : 0700));
  return folder == SharedSocketFolder() ? CheckPrivateFolder(folder) : absl::OkStatus();
}

absl::Status Daemon::Build() {
  ASSIGN_OR_RETURN(const int64_t prepare_bytes, ParseBytes(config_.prepare().memory()));
  ASSIGN_OR_RETURN(retention_, RetentionLimitsOf(config_.retention()));
  ASSIGN_OR_RETURN(const std::vector<Device> devices, FindDevices());
  ASSIGN_OR_RETURN(tenants_, Tenants::FromConfig(config_));
  ASSIGN_OR_RETURN(webhooks_, WebhookSettingsOf(config_.webhooks()));
  ASSIGN_OR_RETURN(store_, JobStore::Open({.state_dir = config_.state_dir(),
                                           .accept_loss = config_.accept_loss()}));
  const std::string confine =
      std::filesystem::path(config_.inspect()).parent_path() / "snug-confine";
  preparer_ = std::make_unique<Preparer>(
      PrepareSettings{.confine = confine,
                      .python = config_.python(),
                      .script = PrepareScript(),
                      .datasets_dir = config_.state_dir() + "/datasets",
                      .memory_bytes = prepare_bytes,
                      .timeout = absl::Seconds(config_.prepare().timeout_seconds())});
  if (const std::string missing = preparer_->Missing(); !missing.empty())
    spdlog::error("no job can be prepared: {}", missing);
  preparer_->RemoveLeftovers();
  RemoveLeftBackups(config_.state_dir());
  uploads_ = std::make_unique<Uploads>(config_.state_dir() + "/uploads");
  for (const std::string& program : {config_.inspect(), confine})
    if (access(program.c_str(), X_OK) != 0)
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot start ", program));
  Roots roots = {.of_users = {config_.roots().begin(), config_.roots().end()},
                 .of_tenants = tenants_.roots()};
  for (auto& [tenant, folders] : roots.of_tenants)  // What they have sent is theirs.
    folders.push_back(uploads_->FolderOf(absl::StrCat("tenant:", tenant)));
  inspector_ = std::make_unique<Inspector>(
      InspectSettings{.program = config_.inspect(), .roots = std::move(roots)});
  ASSIGN_OR_RETURN(const FairPool::Threads prepares,
                   PreparesAtATime(config_.prepare(), prepare_bytes));
  premises_ = {.state_dir = config_.state_dir(), .devices = devices, .host_bytes = host_bytes_};
  ExamineAtStart(*store_, premises_, metrics_);
  RETURN_IF_ERROR(BuildScheduler(devices, prepares));
  RETURN_IF_ERROR(ServeHttp());
  RETURN_IF_ERROR(ServeApi());
  return store_->NoteServed();
}

absl::Status Daemon::ServeApi() {
  ASSIGN_OR_RETURN(tokens_, Tokens::Load(*store_));
  audit_ = std::make_unique<AuditLog>(config_.state_dir() + "/audit.log");
  callers_ = std::make_unique<Callers>(*tokens_, tenants_, sessions_);
  if (config_.listen_size() + config_.listen_http_size() > 0 && config_.tenants_size() == 0)
    spdlog::warn("nobody is let in over TLS: the configuration has no tenants");
  v1::ServerInfo info;
  info.set_version(kVersion);
  info.set_instance_uuid(store_->instance_uuid());
  info.set_boot_epoch(store_->boot_epoch());
  info.set_metrics_port(HttpPort());
  RETURN_IF_ERROR(ServeHttps(info));
  api_ = std::make_unique<Api>(ApiParts{.store = *store_,
                                        .index = index_,
                                        .scheduler = *scheduler_,
                                        .advisor = *advisor_,
                                        .answering = *answering_,
                                        .pool = *pool_,
                                        .checks = *checks_,
                                        .tenants = tenants_,
                                        .tokens = *tokens_,
                                        .sessions = sessions_,
                                        .audit = *audit_,
                                        .uploads = *uploads_,
                                        .state_dir = config_.state_dir(),
                                        .premises = premises_,
                                        .info = info});
  page_.Connect(*api_, *callers_);
  door_.Connect(*api_, *callers_);
  grpc_callers_ = std::make_unique<GrpcCallers>(connections_, *callers_);
  service_ =
      std::make_unique<FineTuningService>(*api_, *grpc_callers_, *pool_, connections_.streams);
  ASSIGN_OR_RETURN(server_, GrpcServer::Start(config_, *service_, connections_));
  return absl::OkStatus();
}

LauncherSettings Daemon::Launcher() const {
  return {.shim = config_.shim(),
          .worker = config_.worker(),
          .worker_cuda = config_.worker_cuda(),
          .state_dir = config_.state_dir(),
          .socket = LauncherSocket(),
          .cgroup = cgroup_};
}

// Before anything is started, which would be in the group, too.
void Daemon::TakeGroup() {
  if (!LauncherSocket().empty()) return;  // The service manager limits workers.
  absl::StatusOr<std::string> group = TakeDelegatedGroup();
  if (!group.ok())
    return spdlog::info("the kernel does not limit workers' memory: {}", group.status().message());
  cgroup_ = *std::move(group);
  spdlog::info("workers have control groups in {}", cgroup_);
}

absl::StatusOr<std::vector<Device>> Daemon::FindDevices() {
  TakeGroup();
  Host host{.memory_bytes = HostMemoryBytes(),
            .cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency())),
            .processor = ProcessorModel()};
  if (NamesGpu(config_)) {
    if (const char* visible = getenv("CUDA_VISIBLE_DEVICES"))
      spdlog::warn("CUDA_VISIBLE_DEVICES={} is not heeded: gpu:N is counted as nvidia-smi does",
                   visible);
    gpu_watch_ = std::make_unique<GpuWatch>(config_.gpu_library());
    host.gpus = GpusForUs(gpu_watch_->Look(), config_.state_dir());
    host.known = ReadKnownGpus(config_.state_dir());
  }
  ASSIGN_OR_RETURN(std::vector<Device> devices, DevicesOf(config_, host));
  ASSIGN_OR_RETURN(host_bytes_, HostBudgetOf(config_, devices, host));
  for (Device& device : devices) device.host_bytes = host_bytes_;
  RETURN_IF_ERROR(MeasureDevices(Launcher(), devices));
  if (gpu_watch_ != nullptr) RETURN_IF_ERROR(WriteKnownGpus(config_.state_dir(), devices));
  for (const Device& device : devices)
    if (!device.gpu.trouble.ok())
      spdlog::error("{}: {}", device.name, device.gpu.trouble.message());
    else if (device.is_gpu() && device.capacity_bytes > device.gpu.free_bytes)
      spdlog::warn("{}: {} bytes are its capacity, and {} of them are taken by others now",
                   device.name, device.capacity_bytes,
                   device.capacity_bytes - device.gpu.free_bytes);
  return devices;
}

absl::Status Daemon::BuildScheduler(std::vector<Device> devices, FairPool::Threads prepares) {
  pool_ = std::make_unique<TaskPool>(kApiThreads);
  checks_ = std::make_unique<FairPool>(
      FairPool::Threads{.any = kCheckThreads, .small = 1, .waiting = kMaxWaitingChecks});
  advisor_ = std::make_unique<Advisor>(
      index_, *preparer_, *inspector_,
      Advisor::Settings{
          .state_dir = config_.state_dir(), .devices = devices, .webhooks = webhooks_.hosts});
  RETURN_IF_ERROR(EndLeftAnswering(config_.state_dir()));
  LauncherSettings launcher = Launcher();
  launcher.instance = store_->instance_uuid();
  for (const Device& device : devices) launcher.most_attempts += device.max_jobs;
  SchedulerSettings settings{.state_dir = config_.state_dir(),
                             .node = std::make_unique<LocalNode>(launcher, gpu_watch_.get()),
                             .devices = devices,
                             .host_bytes = host_bytes_,
                             .inspector = *inspector_,
                             .prepares = prepares,
                             .tenants = tenants_};
  if (config_.max_live_jobs() > 0) settings.limits.max_live_jobs = config_.max_live_jobs();
  ASSIGN_OR_RETURN(scheduler_,
                   Scheduler::Start(std::move(settings), *store_, index_, *preparer_, metrics_));
  keeper_ = std::make_unique<Keeper>(KeeperParts{.limits = retention_,
                                                 .state_dir = config_.state_dir(),
                                                 .store = *store_,
                                                 .index = index_,
                                                 .uploads = *uploads_,
                                                 .scheduler = *scheduler_,
                                                 .metrics = metrics_});
  examiner_ = std::make_unique<Examiner>(*store_, premises_, metrics_, kBetweenExaminations);
  const auto post = [ca = config_.webhooks().tls_ca()](const WebhookUrl& url,
                                                       const WebhookCall& call) {
    return Post({.host = url.host,
                 .port = url.port,
                 .path = url.path,
                 .headers = call.headers,
                 .body = call.body,
                 .tls_ca = ca});
  };
  webhook_sender_ = std::make_unique<WebhookSender>(WebhookParts{
      .settings = webhooks_, .post = post, .store = *store_, .index = index_, .metrics = metrics_});
  answering_ = std::make_unique<Answering>(AnsweringParts{.index = index_,
                                                          .preparer = *preparer_,
                                                          .inspector = *inspector_,
                                                          .scheduler = *scheduler_,
                                                          .launcher = std::move(launcher),
                                                          .devices = std::move(devices)});
  return absl::OkStatus();
}

void Daemon::AddRoutes(httplib::Server& server) {
  ServeMetrics(server, metrics_, [this](const std::string& secret) -> absl::Status {
    ASSIGN_OR_RETURN(const Principal who, callers_->OfSecret(secret));
    return api_->MayScrape(who);
  });
  page_.Serve(server);
  door_.Serve(server);
}

absl::Status Daemon::ServeHttps(v1::ServerInfo& info) {
  for (const v1::ListenConfig& listen : config_.listen_http()) {
    ASSIGN_OR_RETURN(auto server,
                     HttpServer::StartTls(listen, [this](httplib::Server& to) { AddRoutes(to); }));
    info.add_http_addresses(server->address());
    https_.push_back(std::move(server));
  }
  return absl::OkStatus();
}

// A port that the user has named and that somebody has is a mistake in the set-up of a new daemon,
// however often that is started. One that has served before goes on without it, and takes it when
// it is free.
absl::Status Daemon::ServeHttp() {
  const int port = config_.has_metrics_port() ? config_.metrics_port() : kDefaultMetricsPort;
  const auto start = [this, port] {
    return HttpServer::Start(port, [this](httplib::Server& server) { AddRoutes(server); });
  };
  metrics_.WatchDisk(config_.state_dir());
  absl::StatusOr<std::unique_ptr<HttpServer>> started = start();
  absl::MutexLock lock(&http_mutex_);
  if (started.ok()) {
    http_ = *std::move(started);
    return absl::OkStatus();
  }
  if (config_.has_metrics_port() && !store_->has_served()) return started.status();
  spdlog::warn("going on without metrics until the port is free: {}", started.status().message());
  http_waiter_ = std::thread([this, start] {
    while (!stop_waiting_.WaitForNotificationWithTimeout(kBetweenPortTries))
      if (absl::StatusOr<std::unique_ptr<HttpServer>> late = start(); late.ok()) {
        spdlog::info("metrics on http://127.0.0.1:{}/metrics", (*late)->port());
        absl::MutexLock late_lock(&http_mutex_);
        http_ = *std::move(late);
        return;
      }
  });
  return absl::OkStatus();
}

int Daemon::HttpPort() const {
  absl::MutexLock lock(&http_mutex_);
  return http_ == nullptr ? 0 : http_->port();
}

std::string Daemon::Banner() const {
  const int port = HttpPort();
  const std::string metrics =
      port == 0 ? "no metrics" : absl::StrCat("metrics on http://127.0.0.1:", port, "/metrics");
  std::string places = absl::StrCat("unix:", config_.socket());
  for (const std::string& address : server_->addresses())
    absl::StrAppend(&places, " and https://", address);
  std::string pages;
  for (const auto& server : https_)
    absl::StrAppend(&pages, ", pages on https://", server->address());
  return absl::StrCat("snugd: serving on ", places, ", ", metrics, pages);
}

void Daemon::WaitForShutdown() {
  const sigset_t set = EndSignals();
  int signal = 0;
  sigwait(&set, &signal);
  spdlog::info("signal {}: shutting down; workers go on", signal);
  std::thread([set] {
    const timespec limit = {kWatchdogSeconds, 0};
    const int again = sigtimedwait(&set, nullptr, &limit);
    spdlog::warn(again > 0 ? "second signal: ending at once" : "shutdown took too long: ending");
    spdlog::default_logger()->flush();
    _exit(0);
  }).detach();
  Shutdown();
}

// Everything durable is durable already; this is about telling clients and closing the store
// cleanly.
void Daemon::Shutdown() {
  if (http_waiter_.joinable()) {
    stop_waiting_.Notify();
    http_waiter_.join();
  }
  page_.Stop();
  https_.clear();
  {
    absl::MutexLock lock(&http_mutex_);
    http_.reset();
  }
  if (server_ != nullptr) server_->StopAccepting();
  connections_.streams.StopAll();
  webhook_sender_.reset();
  examiner_.reset();
  keeper_.reset();
  if (advisor_ != nullptr) advisor_->Stop();
  if (answering_ != nullptr) answering_->Stop();
  if (scheduler_ != nullptr) scheduler_->Drain();
  if (server_ != nullptr) server_->Shutdown(kDrainPatience);
  server_.reset();
  if (pool_ != nullptr) pool_->Stop();
  if (checks_ != nullptr) checks_->Stop();
  service_.reset();
  api_.reset();
  answering_.reset();
  scheduler_.reset();
  store_.reset();
}

}  // namespace snug::server
