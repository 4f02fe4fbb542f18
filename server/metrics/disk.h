// Bytes of the file system that a folder is on, read when a scrape asks.
#ifndef SERVER_METRICS_DISK_H_
#define SERVER_METRICS_DISK_H_

#include <prometheus/collectable.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <string>
#include <vector>

namespace snug::server {

class Disk : public prometheus::Collectable {
 public:
  explicit Disk(std::string folder);
  // Nothing, when the folder cannot be asked.
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::string folder_;
  prometheus::Registry registry_;
  prometheus::Gauge& size_;
  prometheus::Gauge& available_;
};

}  // namespace snug::server

#endif  // SERVER_METRICS_DISK_H_
