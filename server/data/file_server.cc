#include "server/data/file_server.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "proto/snug/status_macros.h"
#include "server/failpoint.h"

namespace snug::server {
namespace {

// Of a message that carries descriptors beside its bytes.
class Parcel {
 public:
  Parcel(void* bytes, size_t size) : part_{bytes, size} {
    message_.msg_iov = &part_;
    message_.msg_iovlen = 1;
    message_.msg_control = control_;
    message_.msg_controllen = sizeof control_;
  }
  msghdr* message() { return &message_; }

  void Put(int fd) {
    cmsghdr* header = CMSG_FIRSTHDR(&message_);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  void PutNone() { message_.msg_controllen = 0; }

  // The one that came; -1: none did, or more, which are closed.
  int Take() {
    std::vector<int> fds;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message_); header != nullptr;
         header = CMSG_NXTHDR(&message_, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      fds.resize((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
      std::memcpy(fds.data(), CMSG_DATA(header), sizeof(int) * fds.size());
    }
    if (fds.size() == 1) return fds.front();
    for (const int fd : fds) close(fd);
    return -1;
  }

 private:
  iovec part_;
  // More than one fits, so that a second one is seen, not cut off.
  alignas(cmsghdr) char control_[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr message_ = {};
};

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
  while (true) {
    Parcel parcel(path, sizeof path);
    const ssize_t got = recvmsg(ours_, parcel.message(), MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    const int answers = got < 0 ? -1 : parcel.Take();
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
  int32_t code = fd >= 0 ? 0 : errno == EXDEV ? EACCES : std::max(errno, 1);
  Parcel parcel(&code, sizeof code);
  if (fd >= 0)
    parcel.Put(fd);
  else
    parcel.PutNone();
  // Whoever does not take it in has asked for nothing.
  int failed = FAILS_AT("prepare.hand") ? ENOMEM : 0;
  if (failed == 0 && sendmsg(answers, parcel.message(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    failed = errno;
  if (listed && error_ == 0) error_ = code != 0 ? code : failed;
  if (fd >= 0) close(fd);
}

}  // namespace snug::server
