#include "server/http/gateway.h"

#include <chrono>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/status.pb.h"
#include "proto/snug/status_macros.h"

namespace snug::server {
namespace {

constexpr std::chrono::seconds kPatience(10);
constexpr std::chrono::hours kUploadPatience(6);
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
  absl::Status found(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  google::rpc::Status details;
  if (details.ParseFromString(status.error_details()))
    for (const google::protobuf::Any& any : details.details())
      found.SetPayload(any.type_url(), absl::Cord(any.value()));
  return found;
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

absl::StatusOr<std::unique_ptr<Gateway::Sending>> Gateway::Send(const std::string& secret,
                                                                const std::string& filename) const {
  auto sending = std::make_unique<Sending>();
  ASSIGN_OR_RETURN(sending->api_, Prepare(secret, sending->context_));
  sending->context_.set_deadline(std::chrono::system_clock::now() + kUploadPatience);
  sending->writer_ = sending->api_->UploadFile(&sending->context_, &sending->file_);
  v1::UploadFileRequest first;
  first.mutable_header()->set_filename(filename);
  sending->writer_->Write(first);  // Where it fails, the end says why.
  return sending;
}

Gateway::Sending::~Sending() {
  if (writer_ == nullptr) return;
  context_.TryCancel();
  static_cast<void>(writer_->Finish());
}

bool Gateway::Sending::Write(absl::string_view content) {
  v1::UploadFileRequest request;
  request.set_content(std::string(content));
  return writer_->Write(request);
}

absl::StatusOr<v1::File> Gateway::Sending::End() {
  v1::UploadFileRequest request;
  request.set_last(true);
  writer_->Write(request);
  writer_->WritesDone();
  const grpc::Status status = std::exchange(writer_, nullptr)->Finish();
  if (!status.ok()) return FromGrpc(status);
  return file_;
}

}  // namespace snug::server
