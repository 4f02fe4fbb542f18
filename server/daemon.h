// The daemon as one object graph, built in one place, in order, and taken down in the reverse of
// it.
#ifndef SERVER_DAEMON_H_
#define SERVER_DAEMON_H_

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "server/answer/answering.h"
#include "server/api/api.h"
#include "server/api/callers.h"
#include "server/api/sessions.h"
#include "server/data/prepare.h"
#include "server/examine/examiner.h"
#include "server/grpc/connections.h"
#include "server/grpc/grpc_callers.h"
#include "server/grpc/grpc_server.h"
#include "server/grpc/service.h"
#include "server/http/http_server.h"
#include "server/http/openai_door.h"
#include "server/http/status_page.h"
#include "server/job/job_index.h"
#include "server/job/job_store.h"
#include "server/job/tenants.h"
#include "server/job/tokens.h"
#include "server/metrics/metrics.h"
#include "server/node/gpu_use.h"
#include "server/retention/keeper.h"
#include "server/scheduler/advice.h"
#include "server/scheduler/fair_pool.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/task_pool.h"
#include "server/webhook/sender.h"
#include "snug/v1/config.pb.h"

namespace snug::server {

class Daemon {
 public:
  // Blocks SIGTERM and SIGINT in this thread and all that it starts: WaitForShutdown takes them.
  static absl::StatusOr<std::unique_ptr<Daemon>> Create(const v1::DaemonConfig& config);
  ~Daemon();

  // "snugd: serving on unix:... and https://127.0.0.1:7070, metrics on
  // http://127.0.0.1:9464/metrics"
  std::string Banner() const;

  // Until SIGTERM or SIGINT; then an orderly end within 20 s. Workers stay. A second signal ends at
  // once.
  void WaitForShutdown();

 private:
  explicit Daemon(const v1::DaemonConfig& config) : config_(config) {}
  absl::Status TakeState();
  absl::Status Build();
  void TakeGroup();
  LauncherSettings Launcher() const;
  absl::StatusOr<std::vector<Device>> FindDevices();
  absl::Status BuildScheduler(std::vector<Device> devices, FairPool::Threads prepares);
  absl::Status ServeApi();
  absl::Status ServeHttp();
  absl::Status ServeHttps(v1::ServerInfo& info);
  void AddRoutes(httplib::Server& server);
  int HttpPort() const;  // 0: it is not served.
  void Shutdown();

  const v1::DaemonConfig config_;
  int lock_ = -1;
  Metrics metrics_;
  RetentionLimits retention_;
  int64_t host_bytes_ = 0;               // That plans may use beside the devices.
  std::string cgroup_;                   // Of workers; empty: none is handed over.
  std::unique_ptr<GpuWatch> gpu_watch_;  // Where a GPU is among the devices.
  JobIndex index_;
  Connections connections_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<Uploads> uploads_;
  std::unique_ptr<Preparer> preparer_;
  std::unique_ptr<Inspector> inspector_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Keeper> keeper_;
  Premises premises_;  // Of examinations of the store.
  std::unique_ptr<Examiner> examiner_;
  WebhookSettings webhooks_;
  std::unique_ptr<WebhookSender> webhook_sender_;
  std::unique_ptr<Advisor> advisor_;
  std::unique_ptr<Answering> answering_;
  std::unique_ptr<TaskPool> pool_;
  std::unique_ptr<FairPool> checks_;
  Tenants tenants_;
  std::unique_ptr<Tokens> tokens_;
  std::unique_ptr<AuditLog> audit_;
  Sessions sessions_;
  std::unique_ptr<Callers> callers_;
  std::unique_ptr<Api> api_;
  std::unique_ptr<GrpcCallers> grpc_callers_;
  std::unique_ptr<FineTuningService> service_;
  std::unique_ptr<GrpcServer> server_;
  StatusPage page_;
  OpenAiDoor door_;
  absl::Notification stop_waiting_;
  mutable absl::Mutex http_mutex_;
  std::unique_ptr<HttpServer> http_ ABSL_GUARDED_BY(http_mutex_);
  std::thread http_waiter_;  // For a port that somebody has.
  std::vector<std::unique_ptr<HttpServer>> https_;
};

}  // namespace snug::server

#endif  // SERVER_DAEMON_H_
