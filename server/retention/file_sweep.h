// Which files that clients have sent, and which prepared datasets, are to go. No job that there is
// names one of them.
#ifndef SERVER_RETENTION_FILE_SWEEP_H_
#define SERVER_RETENTION_FILE_SWEEP_H_

#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/retention/limits.h"
#include "snug/v1/files.pb.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

// Paths of datasets that jobs name.
class NamedFiles {
 public:
  void Note(const v1::Job& job);
  bool Has(const std::string& path) const { return paths_.contains(path); }

 private:
  std::set<std::string> paths_;
};

struct SentFile {
  std::string id;
  int64_t bytes = 0;
  absl::Duration age;  // Since it was sent, or used.
  bool named = false;  // By a job.
};

// Ids of those of one owner that go. A file that is named stays, and counts like the others.
std::vector<std::string> FilesToGo(const KeepLimits& limits,
                                   const std::vector<SentFile>& newest_first);

}  // namespace snug::server

#endif  // SERVER_RETENTION_FILE_SWEEP_H_
