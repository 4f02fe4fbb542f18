#include "server/grpc/reset_guard.h"

#include "server/job/log.h"

namespace snug::server {

void ResetGuard::Count(const std::string& peer, absl::Duration now) {
  if (rate_.Take(peer, now)) return;
  spdlog::warn("a connection is closed ({}): its calls are taken back as they are made", peer);
  close_(peer);
}

}  // namespace snug::server
