// The files that a job names, opened to be handed on to snug-inspect.
#ifndef SERVER_INSPECT_USER_FILES_H_
#define SERVER_INSPECT_USER_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/inspect/file_access.h"
#include "server/job/check_job.h"
#include "snug/v1/inspect.pb.h"
#include "snug/v1/worker.pb.h"

namespace snug::server {

class UserFiles {
 public:
  // The files of a model's folder and of the adapter to start from. One that a job made lies in the
  // daemon's own state: who may name the job may have it. Empty folders: there is none.
  struct Folder {
    std::string dir;
    bool of_job = false;
  };
  struct Rights {
    const FileAccess& access;
    const Principal& who;
  };
  // What is there. That a file cannot be opened is the reader's to say; UNAVAILABLE when this
  // process has no room for it.
  static absl::StatusOr<UserFiles> Open(const Folder& model, const Folder& adapter,
                                        const Rights& rights);

  UserFiles(UserFiles&& other) noexcept = default;
  UserFiles& operator=(UserFiles&&) = delete;
  ~UserFiles();

  const std::vector<v1::InspectFile>& files() const { return files_; }
  const std::vector<int>& fds() const { return fds_; }  // Of those that were opened, in order.

  // Changes when any of them does: which they are, their sizes and times.
  std::string Identity() const;
  // By which the worker knows them again.
  v1::OpenedFiles Opened() const;

 private:
  UserFiles() = default;
  absl::Status AddModel(const std::string& dir, const Rights& rights);
  absl::Status Add(const std::string& path, bool listed, const Rights& rights);

  std::vector<v1::InspectFile> files_;
  std::vector<int> fds_;
  std::vector<std::string> folders_;
};

}  // namespace snug::server

#endif  // SERVER_INSPECT_USER_FILES_H_
