#include "server/grpc/grpc_server.h"

#include <grpcpp/resource_quota.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/duration.h"
#include "proto/snug/status_macros.h"
#include "server/grpc/other_calls.h"
#include "server/grpc/tls.h"
#include "server/node/descriptors.h"
#include "server/node/tcp_socket.h"
#include "server/node/unix_socket.h"
#include "server/scheduler/clock.h"

namespace snug::server {
namespace {

constexpr mode_t kSocketMode = 0660;  // The group may use the service: the socket is the identity.
constexpr int kMaxReceiveBytes = 4 << 20;
constexpr int kMaxMetadataBytes = 8 << 10;
constexpr int kMaxConcurrentStreams = 100;   // Per connection.
constexpr int kMaxIdleMs = 10 * 60'000;      // Without a call; clients dial again by themselves.
constexpr const char* kMaxAge = "12h";       // Who was let in is looked at anew.
constexpr int kMostAgeSeconds = 20 * 86400;  // gRPC counts it in milliseconds of an int.
constexpr int kHandshakeMs = 10'000;         // Of TLS and HTTP/2.
constexpr int kPingMs = 5 * 60'000;          // While a call lasts: whether the client is there.
constexpr int kPingAnswerMs = 20'000;
constexpr int kReviewMs = 10'000;      // Between looks at who has streams open.
constexpr int kStrangersMs = 250;      // Between looks at what strangers send.
constexpr int kPingsApartMs = 10'000;  // A client that asks more often, thrice, goes.
constexpr size_t kQuotaBytes = 256 << 20;
// Of all addresses together, so that there is always room on the unix socket.
constexpr ConnectionLimits kTlsLimits = {.in_all = 1000, .of_a_user = 200};

absl::StatusOr<int> MaxAgeMs(const v1::DaemonConfig& config) {
  const std::string& age = config.max_connection_age();
  const absl::StatusOr<int64_t> seconds = ParseSeconds(age.empty() ? kMaxAge : age);
  if (!seconds.ok())
    return absl::InvalidArgumentError(
        absl::StrCat("max_connection_age: ", seconds.status().message()));
  if (*seconds > kMostAgeSeconds)
    return absl::InvalidArgumentError(
        absl::StrCat("max_connection_age: ", *seconds, " s is more than 20d, which is the limit"));
  return static_cast<int>(*seconds * 1000);
}

void SetLimits(int max_age_ms, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  // A message is unpacked whole before its size is looked at: 4 MiB may become 4 GiB.
  for (const grpc_compression_algorithm packed : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE})
    builder.SetCompressionAlgorithmSupportStatus(packed, false);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentStreams);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxIdleMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, max_age_ms);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingAnswerMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kPingsApartMs);
  grpc::ResourceQuota quota("snugd");
  quota.Resize(kQuotaBytes);
  builder.SetResourceQuota(quota);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const v1::DaemonConfig& config,
                                                              grpc::Service& service,
                                                              Connections& connections) {
  ASSIGN_OR_RETURN(const int listener, ListenUnix(config.socket(), kSocketMode));
  std::unique_ptr<GrpcServer> server(new GrpcServer(config.socket(), listener, connections));
  server->wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (server->wake_ < 0) return absl::ErrnoToStatus(errno, "eventfd");
  RETURN_IF_ERROR(server->Build(config, service));
  server->thread_ = std::thread([raw = server.get()] { raw->AcceptLoop(); });
  return server;
}

GrpcServer::GrpcServer(std::string socket, int listener, Connections& connections)
    : socket_(std::move(socket)),
      listener_(listener),
      known_(connections),
      tls_connections_(kTlsLimits),
      other_calls_(std::make_unique<OtherCalls>(connections)) {}

absl::Status GrpcServer::Build(const v1::DaemonConfig& config, grpc::Service& service) {
  using Builder = grpc::ServerBuilder;
  ASSIGN_OR_RETURN(const int max_age_ms, MaxAgeMs(config));
  Builder builder;
  SetLimits(max_age_ms, builder);
  builder.RegisterService(&service);
  builder.RegisterCallbackGenericService(other_calls_.get());
  for (const v1::ListenConfig& listen : config.listen()) {
    ASSIGN_OR_RETURN(const auto credentials, TlsCredentials(listen));
    Address& address = addresses_.emplace_back();
    ASSIGN_OR_RETURN(address.listener, ListenTcp(listen.address()));
    address.acceptor = builder.experimental().AddExternalConnectionAcceptor(
        Builder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  }
  server_ = builder.BuildAndStart();
  return server_ == nullptr ? absl::InternalError("gRPC did not start its server")
                            : absl::OkStatus();
}

std::vector<std::string> GrpcServer::addresses() const {
  std::vector<std::string> names;
  for (const Address& address : addresses_) names.push_back(TcpAddressOf(address.listener));
  return names;
}

GrpcServer::~GrpcServer() {
  StopAccepting();
  Shutdown(absl::ZeroDuration());
  for (const Address& address : addresses_)
    if (address.listener >= 0) close(address.listener);
  close(listener_);
  if (wake_ >= 0) close(wake_);
}

void GrpcServer::AcceptLoop() {
  std::vector<pollfd> set = {{listener_, POLLIN, 0}, {wake_, POLLIN, 0}};
  for (const Address& address : addresses_) set.push_back({address.listener, POLLIN, 0});
  while (!stopping_) {
    const int wait_ms = known_.strangers.any() ? kStrangersMs : kReviewMs;
    if (poll(set.data(), set.size(), wait_ms) < 0 && errno != EINTR) return;
    ReviewStrangers();
    ReviewStreams();
    if (set[0].revents != 0) AcceptLocal();
    for (size_t i = 0; i < addresses_.size(); ++i)
      if (set[i + 2].revents != 0) AcceptTls(addresses_[i]);
  }
}

// Every few seconds, however many connections come.
void GrpcServer::ReviewStreams() {
  const absl::Duration now = SinceBoot();
  if (now - streams_reviewed_ < absl::Milliseconds(kReviewMs)) return;
  streams_reviewed_ = now;
  known_.streams.Review();
}

// No more often than that, however many connections come.
void GrpcServer::ReviewStrangers() {
  const absl::Duration now = SinceBoot();
  if (now - strangers_reviewed_ < absl::Milliseconds(kStrangersMs)) return;
  strangers_reviewed_ = now;
  known_.strangers.Review(now);
}

void GrpcServer::AcceptLocal() {
  int fd = AcceptOrPause(listener_, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  fd = known_.peers.Adopt(fd);
  if (fd >= 0 && IsSpareDescriptor(fd) && connections_.Admit(fd))
    grpc::AddInsecureChannelFromFd(server_.get(), fd);
  else if (fd >= 0)
    close(fd);  // The client hears at once, and may try again.
}

void GrpcServer::AcceptTls(Address& address) {
  const int fd = AcceptOrPause(address.listener, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  if (!IsSpareDescriptor(fd) || !tls_connections_.Admit(fd) ||
      !known_.strangers.Admit(fd, SinceBoot())) {
    close(fd);
    return;
  }
  SetUpConnection(fd);
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.fd = fd;
  address.acceptor->HandleNewConnection(&connection);
}

void GrpcServer::StopAccepting() {
  if (!thread_.joinable()) return;
  other_calls_->StopServing();
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
