#include "server/api/grpc_server.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/node/descriptors.h"
#include "server/node/unix_socket.h"

namespace snug::server {
namespace {

constexpr mode_t kSocketMode = 0660;  // The group may use the service: the socket is the identity.
constexpr int kMaxReceiveBytes = 4 << 20;
constexpr int kMaxMetadataBytes = 8 << 10;
constexpr int kMaxConcurrentStreams = 100;  // Per connection.
constexpr int kMaxIdleMs = 10 * 60'000;     // Without a call; clients dial again by themselves.
constexpr size_t kQuotaBytes = 256 << 20;
constexpr absl::Duration kNoDescriptorsPause = absl::Milliseconds(50);

std::unique_ptr<grpc::Server> BuildServer(grpc::Service& service) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentStreams);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxIdleMs);
  builder.SetResourceQuota(grpc::ResourceQuota("snugd").Resize(kQuotaBytes));
  builder.RegisterService(&service);
  return builder.BuildAndStart();
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const std::string& socket,
                                                              grpc::Service& service,
                                                              Peers& peers) {
  ASSIGN_OR_RETURN(const int listener, ListenUnix(socket, kSocketMode));
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) return absl::ErrnoToStatus(errno, "eventfd");
  std::unique_ptr<GrpcServer> server(new GrpcServer(socket, listener, wake, peers));
  server->server_ = BuildServer(service);
  if (server->server_ == nullptr) return absl::InternalError("gRPC did not start its server");
  server->server_->GetHealthCheckService()->SetServingStatus("snug.v1.FineTuning", true);
  server->thread_ = std::thread([raw = server.get()] { raw->AcceptLoop(); });
  return server;
}

GrpcServer::GrpcServer(std::string socket, int listener, int wake, Peers& peers)
    : socket_(std::move(socket)), listener_(listener), wake_(wake), peers_(peers) {}

GrpcServer::~GrpcServer() {
  StopAccepting();
  Shutdown(absl::ZeroDuration());
  close(listener_);
  close(wake_);
}

void GrpcServer::AcceptLoop() {
  while (!stopping_) {
    pollfd set[] = {{listener_, POLLIN, 0}, {wake_, POLLIN, 0}};
    if (poll(set, 2, -1) < 0 && errno != EINTR) return;
    int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        absl::SleepFor(kNoDescriptorsPause);
      continue;
    }
    fd = peers_.Adopt(fd);
    if (fd >= 0 && IsSpareDescriptor(fd) && connections_.Admit(fd))
      grpc::AddInsecureChannelFromFd(server_.get(), fd);
    else if (fd >= 0)
      close(fd);  // The client hears at once, and may try again.
  }
}

void GrpcServer::StopAccepting() {
  if (!thread_.joinable()) return;
  server_->GetHealthCheckService()->Shutdown();
  stopping_ = true;
  const uint64_t one = 1;
  if (write(wake_, &one, sizeof one) < 0) return;
  thread_.join();
  unlink(socket_.c_str());
}

void GrpcServer::Shutdown(absl::Duration patience) {
  if (server_ == nullptr) return;
  server_->Shutdown(absl::ToChronoTime(absl::Now() + patience));
  server_->Wait();
  server_.reset();
}

}  // namespace snug::server
