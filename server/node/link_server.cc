#include "server/node/link_server.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/node/unix_socket.h"

namespace snug::server {
namespace {

constexpr size_t kReadBytes = 64 << 10;
constexpr int kPollMs = 1000;  // A lost wake-up costs no more than this.

}  // namespace

absl::StatusOr<std::unique_ptr<LinkServer>> LinkServer::Start(const std::string& path,
                                                              Handlers handlers) {
  ASSIGN_OR_RETURN(const int listener, ListenUnix(path, 0600));
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) return absl::ErrnoToStatus(errno, "eventfd");
  std::unique_ptr<LinkServer> server(new LinkServer(listener, wake, std::move(handlers)));
  server->thread_ = std::thread([raw = server.get()] { raw->Loop(); });
  return server;
}

LinkServer::LinkServer(int listener, int wake, Handlers handlers)
    : listener_(listener), wake_(wake), handlers_(std::move(handlers)) {}

LinkServer::~LinkServer() {
  stopping_ = true;
  Wake();
  thread_.join();
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, connection] : connections_) close(connection.fd);
  close(listener_);
  close(wake_);
}

void LinkServer::Wake() {
  const uint64_t one = 1;
  // A full counter means that the loop is awake already.
  if (write(wake_, &one, sizeof one) < 0) return;
}

void LinkServer::Send(ConnectionId id, const v1::WorkerCommand& command) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& connection = found->second;
    connection.unsent += Frame(command.SerializeAsString());
    if (connection.unsent.size() > kMaxUnsentBytes) {
      connection.unsent.clear();
      connection.closing = true;
    }
  }
  Wake();
}

void LinkServer::Close(ConnectionId id) {
  {
    absl::MutexLock lock(&mutex_);
    if (const auto found = connections_.find(id); found != connections_.end())
      found->second.closing = true;
  }
  Wake();
}

void LinkServer::Loop() {
  while (!stopping_) {
    std::vector<ConnectionId> ids;
    std::vector<pollfd> set = PollSet(ids);
    if (poll(set.data(), set.size(), kPollMs) <= 0) continue;
    uint64_t ignored;
    if (set[0].revents != 0 && read(wake_, &ignored, sizeof ignored) < 0 && errno != EAGAIN) return;
    if (set[1].revents != 0) Accept();
    for (size_t i = 0; i < ids.size(); ++i)
      if (set[i + 2].revents != 0) Serve(ids[i], set[i + 2].revents);
  }
}

std::vector<pollfd> LinkServer::PollSet(std::vector<ConnectionId>& ids) {
  std::vector<pollfd> set = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
  absl::MutexLock lock(&mutex_);
  if (connections_.size() >= kMaxLinkConnections) set[1].events = 0;
  for (const auto& [id, connection] : connections_) {
    const bool writes = !connection.unsent.empty() || connection.closing;
    set.push_back({connection.fd, static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
    ids.push_back(id);
  }
  return set;
}

void LinkServer::Accept() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  absl::MutexLock lock(&mutex_);
  connections_[next_id_++].fd = fd;
}

void LinkServer::Serve(ConnectionId id, short ready) {
  int fd = -1;
  {
    absl::MutexLock lock(&mutex_);
    fd = connections_[id].fd;
  }
  absl::Status status;
  if ((ready & POLLIN) != 0) status = Read(id, fd);
  if (status.ok() && (ready & POLLOUT) != 0) status = Write(id);
  if (status.ok() && (ready & (POLLERR | POLLHUP | POLLNVAL)) != 0 && (ready & POLLIN) == 0)
    status = absl::UnavailableError("the worker hung up");
  if (!status.ok()) Drop(id, status);
}

absl::Status LinkServer::Read(ConnectionId id, int fd) {
  std::string bytes(kReadBytes, '\0');
  const ssize_t got = read(fd, bytes.data(), bytes.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return absl::OkStatus();
  if (got <= 0) return absl::UnavailableError("the worker hung up");
  std::vector<v1::WorkerEvent> events;
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    FrameReader& reader = connections_[id].reader;
    reader.Add(absl::string_view(bytes.data(), static_cast<size_t>(got)));
    std::string message;
    absl::StatusOr<bool> more = reader.Next(message);
    for (; more.ok() && *more; more = reader.Next(message)) {
      if (events.emplace_back().ParseFromString(message)) continue;
      events.pop_back();
      more = absl::InvalidArgumentError("a message that is no WorkerEvent");
      break;
    }
    status = more.status();
  }
  for (v1::WorkerEvent& event : events) handlers_.on_event(id, std::move(event));
  return status;
}

absl::Status LinkServer::Write(ConnectionId id) {
  absl::MutexLock lock(&mutex_);
  Connection& connection = connections_[id];
  if (!connection.unsent.empty()) {
    const ssize_t sent =
        send(connection.fd, connection.unsent.data(), connection.unsent.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
      return absl::ErrnoToStatus(errno, "sending to the worker");
    if (sent > 0) connection.unsent.erase(0, static_cast<size_t>(sent));
  }
  if (connection.unsent.empty() && connection.closing)
    return absl::CancelledError("closed by the daemon");
  return absl::OkStatus();
}

void LinkServer::Drop(ConnectionId id, const absl::Status& why) {
  {
    absl::MutexLock lock(&mutex_);
    close(connections_[id].fd);
    connections_.erase(id);
  }
  handlers_.on_closed(id, why);
}

}  // namespace snug::server
