#include "client/connection.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/tls.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

constexpr absl::Duration kHandshake = absl::Seconds(10);
constexpr int kMaxMessageBytes = 16 << 20;  // A page of jobs with their plans is below 1 MiB.

absl::Status NobodyThere(const std::string& server, absl::string_view why) {
  const absl::string_view path = absl::StripPrefix(server, "unix:");
  const std::string option = server == DefaultServer() ? "" : absl::StrCat(" --socket ", path);
  return absl::UnavailableError(absl::StrCat(
      "cannot reach a daemon at ", server, ": ", why, "\n  Start one:         snugd", option,
      "\n  or name another:   snug --server unix:PATH COMMAND, or set SNUG_SERVER=unix:PATH"));
}

std::string Reason(int error) {
  if (error == ENOENT) return "there is no such socket";
  if (error == ECONNREFUSED) return "the socket is there but no daemon listens on it";
  if (error == EACCES) return "you may not open the socket; its group may (see ls -l)";
  return std::strerror(error);
}

// gRPC says "failed to connect to all addresses" whatever the cause; a plain connect() knows it.
absl::Status Probe(const std::string& server, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--server ", server, ": a socket's path has at most ",
                     sizeof(address.sun_path) - 1, " bytes; this one has ", path.size()));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::InternalError(absl::StrCat("socket: ", std::strerror(errno)));
  const bool connected =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  const int error = errno;
  close(fd);
  return connected ? absl::OkStatus() : NobodyThere(server, Reason(error));
}

// The folder of a socket in /tmp/snug-UID: whoever else made it would be taken for the daemon.
absl::Status CheckShared(absl::string_view path) {
  const std::string folder = absl::StrCat("/tmp/snug-", geteuid());
  struct stat status {};
  if (!absl::StartsWith(path, folder + "/") || lstat(folder.c_str(), &status) != 0)
    return absl::OkStatus();
  if (S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
      (status.st_mode & (S_IWGRP | S_IWOTH)) == 0)
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(folder, " is not a folder of yours alone (it belongs to user ", status.st_uid,
                   "): whoever listens there may be no daemon of yours"));
}

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // The defaults (1 s to 2 min) are for servers across the world. The minimum stays: it is also
  // the time that a busy daemon has to answer the handshake.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return arguments;
}

// The first handshake. One that fails is not tried again: another certificate is needed, not time.
absl::Status Shake(const std::string& server, grpc::Channel& channel) {
  const auto deadline = absl::ToChronoTime(absl::Now() + kHandshake);
  grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
  while (state != GRPC_CHANNEL_READY && state != GRPC_CHANNEL_TRANSIENT_FAILURE &&
         channel.WaitForStateChange(state, deadline))
    state = channel.GetState(/*try_to_connect=*/true);
  if (state == GRPC_CHANNEL_READY) return absl::OkStatus();
  // A call is what gRPC tells the reason to.
  grpc::ClientContext context;
  context.set_deadline(deadline);
  v1::ServerInfo info;
  const auto stub = v1::FineTuning::NewStub(channel.shared_from_this());
  const grpc::Status status = stub->GetServerInfo(&context, {}, &info);
  if (!IsLost(status)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot reach a daemon at ", server, ": ",
                                             status.error_message(),
                                             "\n  Its certificate must be by an authority of ",
                                             "--tls-ca, and it may ask for yours (--tls-cert)"));
}

}  // namespace

std::string DefaultServerOf(uid_t user, absl::string_view runtime, const Exists& exists) {
  if (user == 0) return kServiceSocket;
  const std::string own = runtime.empty() ? absl::StrCat("unix:/tmp/snug-", user, "/snug.sock")
                                          : absl::StrCat("unix:", runtime, "/snug/snug.sock");
  return !exists(own) && exists(kServiceSocket) ? kServiceSocket : own;
}

std::string DefaultServer() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  return DefaultServerOf(geteuid(), runtime == nullptr ? "" : runtime, [](const std::string& name) {
    return access(name.c_str() + sizeof("unix:") - 1, F_OK) == 0;
  });
}

bool IsLost(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return true;
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNKNOWN:
      return status.error_details().empty();
    default:
      return false;
  }
}

bool Backoff::Wait() {
  const absl::Time now = absl::Now();
  if (first_ == absl::InfinitePast()) first_ = now;
  if (now - first_ > limit_) return false;
  absl::SleepFor(next_);
  next_ = std::min(next_ * 2, absl::Seconds(2));
  return true;
}

absl::StatusOr<Connection> Connection::Open(const Server& server) {
  const grpc::ChannelArguments arguments = Arguments();
  if (absl::StartsWith(server.name, "https://")) {
    ASSIGN_OR_RETURN(const auto channel, TlsChannel(server, arguments));
    if (absl::Status status = Shake(server.name, *channel); !status.ok()) return status;
    return Connection(v1::FineTuning::NewStub(channel));
  }
  absl::string_view path = server.name;
  if (!absl::ConsumePrefix(&path, "unix:") || path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--server must be unix:PATH or https://HOST:PORT, for example ",
                     DefaultServer(), ", not \"", server.name, "\""));
  }
  absl::ConsumePrefix(&path, "//");  // unix:///absolute/path is the same.
  if (absl::Status status = CheckShared(path); !status.ok()) return status;
  if (absl::Status status = Probe(server.name, std::string(path)); !status.ok()) return status;
  return Connection(v1::FineTuning::NewStub(grpc::CreateCustomChannel(
      absl::StrCat("unix:", path), grpc::InsecureChannelCredentials(), arguments)));
}

}  // namespace snug::client
