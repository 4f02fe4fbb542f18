#include "server/node/link_server.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/failpoint.h"
#include "server/node/clock.h"
#include "server/node/descriptors.h"
#include "server/node/unix_socket.h"

namespace snug::server {
namespace {

constexpr size_t kReadBytes = 64 << 10;
constexpr absl::Duration kPoll = absl::Seconds(1);  // A lost wake-up costs no more than this.
constexpr absl::Duration kShortPoll = absl::Milliseconds(20);  // While somebody has to wait.
constexpr absl::Duration kNoDescriptorsPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<LinkServer>> LinkServer::Start(const std::string& path,
                                                              Handlers handlers,
                                                              LinkLimits limits) {
  ASSIGN_OR_RETURN(const int listener, ListenUnix(path, 0600));
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) return absl::ErrnoToStatus(errno, "eventfd");
  std::unique_ptr<LinkServer> server(
      new LinkServer(listener, wake, std::move(handlers), std::move(limits)));
  server->thread_ = std::thread([raw = server.get()] { raw->Loop(); });
  return server;
}

LinkServer::LinkServer(int listener, int wake, Handlers handlers, LinkLimits limits)
    : listener_(listener), wake_(wake), handlers_(std::move(handlers)), limits_(limits) {}

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

LinkServer::Events LinkServer::Take(ConnectionId id) {
  absl::MutexLock lock(&mutex_);
  const auto found = connections_.find(id);
  if (found == connections_.end()) return {};
  found->second.announced = false;
  return found->second.mailbox.Take();
}

void LinkServer::Welcome(ConnectionId id) {
  absl::MutexLock lock(&mutex_);
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  found->second.welcome = true;
  found->second.reader.AllowFrames(kMaxFrameBytes);
}

void LinkServer::Send(ConnectionId id, const v1::WorkerCommand& command) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& connection = found->second;
    connection.unsent += Frame(command.SerializeAsString());
    if (connection.unsent.size() > limits_.unsent_bytes) {
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
    const bool all_polled = std::all_of(
        set.begin() + 1, set.end(), [](const pollfd& one) { return (one.events & POLLIN) != 0; });
    const int ready =
        poll(set.data(), set.size(),
             static_cast<int>(absl::ToInt64Milliseconds(all_polled ? kPoll : kShortPoll)));
    DropLate();
    if (ready <= 0) continue;
    uint64_t ignored;
    if (set[0].revents != 0 && read(wake_, &ignored, sizeof ignored) < 0 && errno != EAGAIN) return;
    if (set[1].revents != 0) Accept();
    for (size_t i = 0; i < ids.size(); ++i)
      if (set[i + 2].revents != 0) Serve(ids[i], set[i + 2].revents);
  }
}

std::vector<pollfd> LinkServer::PollSet(std::vector<ConnectionId>& ids) {
  const absl::Duration now = SinceBoot();
  const auto reads = [&](absl::Duration again) -> short { return now >= again ? POLLIN : 0; };
  std::vector<pollfd> set = {{wake_, POLLIN, 0}, {listener_, reads(accept_again_), 0}};
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, connection] : connections_) {
    const bool writes = !connection.unsent.empty() || connection.closing;
    const short events = reads(connection.read_again);
    set.push_back({connection.fd, static_cast<short>(events | (writes ? POLLOUT : 0)), 0});
    ids.push_back(id);
  }
  return set;
}

void LinkServer::Accept() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)) return;
  if (fd < 0 || !IsSpareDescriptor(fd)) {
    if (fd >= 0) close(fd);
    accept_again_ = SinceBoot() + kNoDescriptorsPause;
    return;
  }
  if (const ConnectionId oldest = OldestStranger(); oldest != 0)
    Drop(oldest, absl::ResourceExhaustedError("made room for another"));
  absl::MutexLock lock(&mutex_);
  if (connections_.size() >= limits_.connections) {
    close(fd);
    return;
  }
  Connection& connection = connections_[next_id_++];
  connection.fd = fd;
  connection.accepted = SinceBoot();
}

// That has to go before another may come; 0: nobody has.
LinkServer::ConnectionId LinkServer::OldestStranger() const {
  absl::MutexLock lock(&mutex_);
  ConnectionId oldest = 0;
  size_t strangers = 0;
  for (const auto& [id, connection] : connections_) {
    if (connection.welcome) continue;
    if (oldest == 0) oldest = id;
    ++strangers;
  }
  const bool full = connections_.size() >= limits_.connections || strangers >= limits_.strangers;
  return full ? oldest : 0;
}

void LinkServer::DropLate() {
  const absl::Duration now = SinceBoot();
  std::vector<std::pair<ConnectionId, absl::Status>> late;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, connection] : connections_) {
      if (!connection.said_hello && now - connection.accepted > limits_.hello)
        late.emplace_back(id, absl::DeadlineExceededError("no Hello"));
      else if (connection.reader.HasPart() && now - connection.part_began > limits_.message)
        late.emplace_back(id, absl::InvalidArgumentError("a message that does not end"));
    }
  }
  for (const auto& [id, why] : late) Drop(id, why);
}

void LinkServer::Serve(ConnectionId id, short ready) {
  {
    absl::MutexLock lock(&mutex_);
    if (connections_.count(id) == 0) return;  // It has just made room, or was late.
  }
  // One that hung up is read to its end: its last words count.
  absl::Status status;
  if ((ready & (POLLIN | POLLHUP | POLLERR)) != 0) status = Read(id);
  if (status.ok() && (ready & POLLOUT) != 0) status = Write(id);
  if (!status.ok()) Drop(id, status);
}

absl::Status LinkServer::Read(ConnectionId id) {
  std::array<char, kReadBytes> bytes;  // Not set to 0: there is a read for each message.
  absl::Status status;
  bool announce = false;
  {
    absl::MutexLock lock(&mutex_);
    if (FAILS_AT("link.read")) return absl::UnavailableError("a failed read");
    Connection& connection = connections_[id];
    const ssize_t got = read(connection.fd, bytes.data(), bytes.size());
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return absl::OkStatus();
    if (got <= 0) return absl::UnavailableError("the worker hung up");
    const absl::StatusOr<int> events =
        TakeIn(connection, absl::string_view(bytes.data(), static_cast<size_t>(got)));
    status = events.status();
    announce = events.ok() && *events > 0 && !std::exchange(connection.announced, true);
  }
  FAILPOINT("link.received");
  if (announce) handlers_.on_events(id);
  return status;
}

// Into the mailbox; how many messages it were.
absl::StatusOr<int> LinkServer::TakeIn(Connection& connection, absl::string_view bytes) {
  const absl::Duration now = SinceBoot();
  const bool had_part = connection.reader.HasPart();
  connection.reader.Add(bytes);
  int events = 0;
  std::string message;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, connection.reader.Next(message));
    if (!more) break;
    v1::WorkerEvent event;
    if (!event.ParseFromString(message))
      return absl::InvalidArgumentError("a message that is no WorkerEvent");
    connection.said_hello |= event.has_hello();
    connection.mailbox.Put(std::move(event));
    ++events;
  }
  if (events > 0 || !had_part) connection.part_began = now;
  connection.read_again =
      now + std::min(absl::Seconds(events / limits_.events_per_second), kLongestPause);
  return events;
}

absl::Status LinkServer::Write(ConnectionId id) {
  absl::MutexLock lock(&mutex_);
  Connection& connection = connections_[id];
  if (!connection.unsent.empty()) {
    if (FAILS_AT("link.send")) return absl::UnavailableError("a failed send");
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
  Events rest;
  {
    absl::MutexLock lock(&mutex_);
    Connection& connection = connections_[id];
    rest = connection.mailbox.Take();
    close(connection.fd);
    connections_.erase(id);
  }
  handlers_.on_closed(id, why, std::move(rest));
}

}  // namespace snug::server
