// Which files a user may have the daemon open. The daemon's own user: any. Everybody else: those
// below the folders that its configuration names (roots), along no link that leads out of them. On
// the unix socket that is as far as his own rights reach; a tenant has no user on this machine, and
// may have all that lies below its roots.
#ifndef SERVER_INSPECT_FILE_ACCESS_H_
#define SERVER_INSPECT_FILE_ACCESS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/data/held_files.h"
#include "server/data/sources.h"
#include "server/job/check_job.h"
#include "server/job/errors.h"
#include "server/job/principal.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

struct Roots {
  std::vector<std::string> of_users = {};
  std::map<std::string, std::vector<std::string>> of_tenants = {};  // By their names.
};

class FileAccess {
 public:
  explicit FileAccess(Roots roots = {}) : roots_(std::move(roots)) {}

  // Every path that a job names, by its field. What is said of a path outside the roots does not
  // depend on what is there; of one inside, only on what the user himself can see.
  std::vector<Violation> Check(const v1::JobSpec& spec, const Principal& who,
                               InputFiles inputs = InputFiles::kNeeded) const;

  // What may be opened for him later, by who prepares his dataset. It refers to this.
  Reach ReachOf(const Principal& who) const;

  // A descriptor for reading, also of a folder; below 0: errno says why, EXDEV for what is outside
  // the roots.
  int Open(const std::string& path, const Principal& who) const;

 private:
  absl::Status CheckSource(Source source, const Principal& who, InputFiles inputs) const;
  absl::Status CheckAdapter(const std::string& path, const Principal& who, InputFiles inputs) const;
  absl::Status CheckPath(const std::string& path, const Principal& who) const;
  const std::vector<std::string>& RootsOf(const Principal& who) const;

  const Roots roots_;
};

}  // namespace snug::server

#endif  // SERVER_INSPECT_FILE_ACCESS_H_
