#include "server/data/file_server.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "proto/snug/status_macros.h"
#include "server/failpoint.h"
#include "server/shim/descriptor_message.h"

namespace snug::server {
namespace {

// The only one of them; -1: there is none, or more, which are closed.
int OneOf(const std::vector<int>& fds) {
  if (fds.size() == 1) return fds.front();
  for (const int fd : fds) close(fd);
  return -1;
}

absl::Status WriteAll(int fd, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t wrote = write(fd, bytes.data() + at, bytes.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return absl::ErrnoToStatus(errno, "cannot write a list of files");
    at += static_cast<size_t>(wrote);
  }
  return lseek(fd, 0, SEEK_SET) == 0 ? absl::OkStatus() : absl::ErrnoToStatus(errno, "lseek");
}

}  // namespace

FileServer::FileServer(std::set<std::string> paths, Opener open)
    : paths_(std::move(paths)), open_(std::move(open)) {}

FileServer::~FileServer() {
  if (thread_.joinable()) {
    shutdown(ours_, SHUT_RDWR);  // Whoever waits there for a message is told that none comes.
    thread_.join();
  }
  for (const int fd : {ours_, theirs_, list_})
    if (fd >= 0) close(fd);
}

absl::StatusOr<std::unique_ptr<FileServer>> FileServer::Start(std::set<std::string> paths,
                                                              Opener open) {
  std::unique_ptr<FileServer> server(new FileServer(std::move(paths), std::move(open)));
  RETURN_IF_ERROR(server->Listen());
  return server;
}

absl::Status FileServer::Listen() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return absl::ErrnoToStatus(errno, "cannot make a pair of sockets");
  ours_ = ends[0];
  theirs_ = ends[1];
  list_ = memfd_create("snug-file-list", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (list_ < 0) return absl::ErrnoToStatus(errno, "cannot make a list of files");
  std::string list;
  for (const std::string& path : paths_) list.append(path).push_back('\0');
  RETURN_IF_ERROR(WriteAll(list_, list));
  if (fcntl(list_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
    return absl::ErrnoToStatus(errno, "cannot seal a list of files");
  thread_ = std::thread(&FileServer::Serve, this);
  return absl::OkStatus();
}

void FileServer::Serve() {
  char path[PATH_MAX];
  std::vector<int> fds;
  while (true) {
    const ssize_t got = shim::ReceiveWithDescriptors(ours_, path, sizeof path, fds);
    // No path of ours, or no room for the end to answer on: whoever asks is hung up on.
    if (got < 0 && (errno == EMSGSIZE || errno == EMFILE)) continue;
    const int answers = OneOf(fds);
    const absl::Cleanup close_it = [answers] {
      if (answers >= 0) close(answers);
    };
    if (got <= 0) return;
    if (answers >= 0) Answer(std::string(path, static_cast<size_t>(got)), answers);
  }
}

void FileServer::Answer(const std::string& path, int answers) {
  const bool listed = paths_.contains(path);
  const int fd = listed ? open_(path) : (errno = ENOENT, -1);
  const int32_t code = fd >= 0 ? 0 : errno == EXDEV ? EACCES : std::max(errno, 1);
  std::vector<int> fds;
  if (fd >= 0) fds.push_back(fd);
  // Whoever does not take it in has asked for nothing.
  int failed = FAILS_AT("prepare.hand") ? ENOMEM : 0;
  if (failed == 0 && shim::SendWithDescriptors(answers, &code, sizeof code, fds, MSG_DONTWAIT) < 0)
    failed = errno;
  if (listed && error_ == 0) error_ = code != 0 ? code : failed;
  if (fd >= 0) close(fd);
}

}  // namespace snug::server
