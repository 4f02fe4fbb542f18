#include "server/metrics/disk.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "server/metrics/series.h"

namespace snug::server {

Disk::Disk(std::string folder)
    : folder_(std::move(folder)),
      size_(Gauges(registry_, "snug_state_disk_size_bytes",
                   "Bytes of the file system that the state folder is on.")
                .Add({})),
      available_(Gauges(registry_, "snug_state_disk_available_bytes",
                        "Bytes of that file system that the daemon may still write.")
                     .Add({})) {}

std::vector<prometheus::MetricFamily> Disk::Collect() const {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder_, error);
  if (error) return {};
  size_.Set(static_cast<double>(space.capacity));
  available_.Set(static_cast<double>(space.available));
  return registry_.Collect();
}

}  // namespace snug::server
