#include "tests/fault/crash/failing_daemon.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/grpcpp.h"
#include "proto/snug/status_macros.h"
#include "server/job/database.h"
#include "server/node/session.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::crash {
namespace {

namespace fs = std::filesystem;

constexpr off_t kAuditBytes = 32 << 20;  // Of audit.log, which then becomes audit.log.1.
constexpr absl::Duration kStartPatience = absl::Seconds(60);
constexpr std::chrono::seconds kAnswerPatience{10};
constexpr absl::Duration kBetweenDials = absl::Milliseconds(2);

bool Listens(const std::string& socket_path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const absl::Cleanup close_it = [fd] { close(fd); };
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path.c_str(), sizeof address.sun_path - 1);
  return connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

// Inodes of the files that somebody holds by flock, of whatever file system.
std::set<ino_t> LockedInodes() {
  std::set<ino_t> inodes;
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, mode, pid, place;
    if (!(words >> number >> kind >> advisory >> mode >> pid >> place) || kind != "FLOCK") continue;
    inodes.insert(std::strtoull(place.c_str() + place.rfind(':') + 1, nullptr, 10));
  }
  return inodes;
}

}  // namespace

FailingDaemon::FailingDaemon(Programs programs) : programs_(std::move(programs)) {
  std::string name = fs::temp_directory_path() / "snug-crash-XXXXXX";
  folder_ = mkdtemp(name.data());
  state_ = folder_ + "/state";
  socket_ = folder_ + "/s";
  server::WriteTinyModel(folder_ + "/model");
  server::WriteTinyDataset(folder_ + "/train.jsonl", 20, 30);
  std::ofstream(folder_ + "/secret") << "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVowMTIz\n";
  chmod((folder_ + "/secret").c_str(), 0600);
  std::ofstream(folder_ + "/config.yaml")
      << "worker: " << programs_.worker << "\nshim: " << programs_.shim
      << "\ninspect: " << programs_.inspect << "\nmax_jobs_per_device: 4\n"
      << "devices: [{name: \"cpu:0\", capacity: 1GiB, threads_per_job: 1}]\n"
      << "retention: {checkpoints: {count: 1}, sweep_seconds: 1}\n"
      << "webhooks: {secret_file: " << folder_ << "/secret, hosts: [\"" << kHook << "\"]}\n";
}

FailingDaemon::~FailingDaemon() {
  process_.Kill();
  KillProcesses(Whom::kBoth);
  launcher_.reset();
  std::error_code error;
  if (!kept_) fs::remove_all(folder_, error);
}

std::vector<std::string> FailingDaemon::Command() const {
  return {programs_.daemon, "--state-dir",           state_, "--socket", socket_,
          "--config",       folder_ + "/config.yaml"};
}

void FailingDaemon::Start(const std::string& points, bool with_launcher) {
  stub_.reset();
  launcher_.reset();
  std::vector<std::string> environment = {"SNUG_FAILPOINT=" + points,
                                          "SNUG_FAILPOINT_LOG=" + folder_ + "/hits"};
  if (with_launcher) {
    launcher_ = std::make_unique<Launcher>(programs_.launch, folder_ + "/l", folder_ + "/log");
    environment.push_back("SNUG_LAUNCHER=" + launcher_->socket());
  }
  std::vector<std::string> command = Command();
  command.insert(command.end(), {"--metrics-port", "0"});
  process_ = Child(std::move(command), std::move(environment), folder_ + "/log");
}

bool FailingDaemon::Serves() {
  const absl::Time end = absl::Now() + kStartPatience;
  while (absl::Now() < end && !process_.EndsWithin(kBetweenDials)) {
    if (!Listens(socket_)) continue;
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // None that still waits to dial.
    stub_ = v1::FineTuning::NewStub(grpc::CreateCustomChannel(
        "unix:" + socket_, grpc::InsecureChannelCredentials(), arguments));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kAnswerPatience);
    v1::ServerInfo info;
    if (stub_->GetServerInfo(&context, {}, &info).ok()) return true;
  }
  return false;
}

std::map<std::string, int64_t> FailingDaemon::Hits() const {
  std::map<std::string, int64_t> hits;
  std::ifstream log(folder_ + "/hits");
  for (std::string name; log >> name;) ++hits[name];
  return hits;
}

int64_t FailingDaemon::hits_bytes() const {
  struct stat status {};
  return stat((folder_ + "/hits").c_str(), &status) == 0 ? status.st_size : 0;
}

int64_t FailingDaemon::RunningWorkers() const {
  const std::set<ino_t> locked = LockedInodes();
  int64_t running = 0;
  std::error_code error;
  for (const auto& job : fs::directory_iterator(state_ + "/jobs", error)) {
    struct stat status {};
    if (stat((job.path() / "one-worker").c_str(), &status) == 0)
      running += locked.contains(status.st_ino);
  }
  return running;
}

void FailingDaemon::KillProcesses(Whom whom) const {
  const auto processes = server::ProcessesOfAttempts(state_ + "/jobs/");
  if (!processes.ok()) return;
  for (const auto& [pid, attempt] : *processes) {
    std::error_code error;
    const std::string program = fs::read_symlink(absl::StrCat("/proc/", pid, "/exe"), error);
    const bool worker = program == fs::canonical(programs_.worker, error);
    if (whom == Whom::kOne && attempt != processes->rbegin()->second) continue;
    if (whom == Whom::kOne || whom == Whom::kBoth || worker == (whom == Whom::kWorkers))
      kill(pid, SIGKILL);
  }
}

absl::Status FailingDaemon::Restore(const std::string& points) {
  const std::string copy = folder_ + "/copy.db";
  std::error_code error;
  fs::remove(copy, error);
  {
    ASSIGN_OR_RETURN(auto database, server::Database::Open(state_ + "/snug.db"));
    RETURN_IF_ERROR(database->Run("VACUUM INTO ?", {copy}));
  }
  std::vector<std::string> command = Command();
  command.insert(command.end(), {"--restore", copy});
  for (const std::string& point : {points, std::string()}) {
    Child restoring(command, {"SNUG_FAILPOINT=" + point, "SNUG_FAILPOINT_LOG=" + folder_ + "/hits"},
                    folder_ + "/log");
    if (!restoring.EndsWithin(kStartPatience)) return absl::InternalError("snugd --restore hangs");
    if (point.empty() && restoring.exit_code() != 0)
      return absl::InternalError(
          absl::StrCat("snugd --restore ends with ", restoring.exit_code(), " after ", points));
  }
  for (const auto& entry : fs::directory_iterator(state_, error))
    if (absl::StrContains(entry.path().filename().string(), ".replaced-")) fs::remove(entry, error);
  return absl::OkStatus();
}

void FailingDaemon::FillAuditLog() const {
  const std::string path = state_ + "/audit.log";
  std::ofstream(path, std::ios::app).flush();
  chmod(path.c_str(), 0600);
  if (truncate(path.c_str(), kAuditBytes - 1) != 0) perror("audit.log");  // A file of holes.
}

void FailingDaemon::PlantStaleFolders() const {
  const auto database = server::Database::Open(state_ + "/snug.db");
  if (!database.ok()) return;
  const absl::Status planted = (*database)->Query(
      "SELECT id, (SELECT coalesce(max(epoch), 0) FROM attempts WHERE job=id) + 1 FROM jobs "
      "WHERE state NOT IN (8, 9, 10)",
      [&](const server::Row& row) {
        const std::string dir = absl::StrCat(JobDir(row.Text(0)), "/attempts/", row.Int(1));
        std::error_code error;
        fs::create_directories(dir, error);
        std::ofstream(dir + "/result.json") << R"({"outcome": "OUTCOME_SUCCEEDED"})";
        return absl::OkStatus();
      });
  if (!planted.ok()) fprintf(stderr, "%s\n", planted.ToString().c_str());
}

void FailingDaemon::MoveToTrash(const std::string& job) const {
  std::error_code error;
  fs::create_directories(state_ + "/trash", error);
  fs::rename(JobDir(job), absl::StrCat(state_, "/trash/", job, ".0123456789ab"), error);
}

}  // namespace snug::crash
