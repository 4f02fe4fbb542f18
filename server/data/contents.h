// What files hold, by their SHA-256, each read once as long as it stays the same.
#ifndef SERVER_DATA_CONTENTS_H_
#define SERVER_DATA_CONTENTS_H_

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/data/sha256.h"

namespace snug::server {

struct Content {
  // It changes when the file is another one, or is written to. (Whoever writes can set the time of
  // writing back, but not that of the last change.)
  std::string identity;
  std::string sha256;
  bool operator==(const Content&) const = default;
};
using Contents = std::map<std::string, Content>;  // By path.

// Remembers the contents of some thousand files.
class ContentMemo {
 public:
  // Of an open file, which `path` names in errors. `known`: what it held when it was looked at
  // before.
  absl::StatusOr<Content> Of(int fd, const std::string& path, const Content& known,
                             const HashWatch& watch) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::string> hashes_ ABSL_GUARDED_BY(mutex_);  // By identity.
};

}  // namespace snug::server

#endif  // SERVER_DATA_CONTENTS_H_
