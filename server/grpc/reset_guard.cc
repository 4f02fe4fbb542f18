#include "server/grpc/reset_guard.h"

#include <algorithm>

#include "server/job/log.h"

namespace snug::server {

double ResetGuard::Left(const Connection& connection, absl::Duration now) const {
  const double forgotten = absl::ToDoubleSeconds(now - connection.at) * limits_.per_second;
  return std::max(0.0, connection.calls - forgotten);
}

void ResetGuard::Count(const std::string& peer, absl::Duration now) {
  {
    absl::MutexLock lock(&mutex_);
    if (connections_.size() >= forget_at_) {
      std::erase_if(connections_, [&](const auto& each) { return Left(each.second, now) == 0; });
      forget_at_ = std::max<size_t>(64, 2 * connections_.size());
    }
    Connection& connection = connections_[peer];
    connection = {.calls = Left(connection, now) + 1, .at = now};
    if (connection.calls <= limits_.burst) return;
    connection.calls = 0;
  }
  spdlog::warn("a connection is closed ({}): its calls are taken back as they are made", peer);
  close_(peer);
}

size_t ResetGuard::size() const {
  absl::MutexLock lock(&mutex_);
  return connections_.size();
}

}  // namespace snug::server
