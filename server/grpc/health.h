// grpc.health.v1.Health: whether the daemon serves, for load balancers and supervisors. gRPC has
// such a service of its own, over which calls could be taken back without end: nobody counts them.
#ifndef SERVER_GRPC_HEALTH_H_
#define SERVER_GRPC_HEALTH_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpc/health/v1/health.pb.h"
#include "server/grpc/counted_call.h"

namespace snug::server {

class HealthWatch;

// For any thread.
class Health {
 public:
  using Response = grpc::health::v1::HealthCheckResponse;

  // SERVING until StopServing: the daemon as a whole, which has no name, and snug.v1.FineTuning.
  // SERVICE_UNKNOWN: there is no such service.
  Response::ServingStatus StatusOf(const std::string& service) const;

  // From now on it is NOT_SERVING. Those who watch are told, and their calls go on.
  void StopServing() ABSL_LOCKS_EXCLUDED(mutex_);

  // The calls of the two methods, which this outlives.
  grpc::ServerGenericBidiReactor* Check(CancelHook on_cancel) const;
  grpc::ServerGenericBidiReactor* Watch(CancelHook on_cancel);

  // It is told when a status changes.
  void Add(const std::shared_ptr<HealthWatch>& watch) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  std::atomic<bool> serving_{true};
  absl::Mutex mutex_;
  std::vector<std::weak_ptr<HealthWatch>> watches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace snug::server

#endif  // SERVER_GRPC_HEALTH_H_
