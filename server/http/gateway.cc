#include "server/http/gateway.h"

#include <chrono>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace snug::server {
namespace {

constexpr std::chrono::seconds kPatience(10);
constexpr size_t kMaxSecretBytes = 200;
constexpr size_t kMaxMetricsBytes = 64 << 20;

// What else may stand in a header of HTTP may not stand in one of gRPC.
bool MayBeSecret(absl::string_view text) {
  const auto plain = [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; };
  return !text.empty() && text.size() <= kMaxSecretBytes && absl::c_all_of(text, plain);
}

}  // namespace

void Gateway::Connect(const std::shared_ptr<grpc::Channel>& channel) {
  absl::MutexLock lock(&mutex_);
  api_ = v1::FineTuning::NewStub(channel);
}

absl::StatusOr<std::shared_ptr<Api>> Gateway::Prepare(const std::string& secret,
                                                      grpc::ClientContext& context) const {
  if (!MayBeSecret(secret))
    return absl::UnauthenticatedError("no session and no token: run `snug open`");
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  context.AddMetadata("authorization", absl::StrCat("Bearer ", secret));
  absl::MutexLock lock(&mutex_);
  if (api_ == nullptr) return absl::UnavailableError("the daemon is starting: try again");
  return api_;
}

absl::Status Gateway::FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

absl::StatusOr<std::string> Gateway::MetricsOf(const std::string& secret,
                                               const std::string& job) const {
  grpc::ClientContext context;
  const absl::StatusOr<std::shared_ptr<Api>> api = Prepare(secret, context);
  if (!api.ok()) return api.status();
  v1::GetJobLogsRequest request;
  request.set_id(job);
  request.set_metrics(true);
  const auto reader = (*api)->GetJobLogs(&context, request);
  std::string text;
  v1::LogChunk chunk;
  while (reader->Read(&chunk)) {
    text += chunk.text();
    if (text.size() > kMaxMetricsBytes) context.TryCancel();
  }
  const grpc::Status status = reader->Finish();
  if (text.size() > kMaxMetricsBytes)
    return absl::ResourceExhaustedError(
        absl::StrCat("the job's metrics are more than ", kMaxMetricsBytes, " bytes"));
  if (!status.ok()) return FromGrpc(status);
  return text;
}

int HttpCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

}  // namespace snug::server
