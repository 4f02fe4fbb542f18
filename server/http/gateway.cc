#include "server/http/gateway.h"

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/job/errors.h"

namespace snug::server {
namespace {

constexpr size_t kMaxSecretBytes = 200;
constexpr size_t kMaxMetricsBytes = 64 << 20;

bool MayBeSecret(absl::string_view text) {
  const auto plain = [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; };
  return !text.empty() && text.size() <= kMaxSecretBytes && absl::c_all_of(text, plain);
}

}  // namespace

void Gateway::Connect(Api& api, Callers& callers) {
  absl::MutexLock lock(&mutex_);
  api_ = &api;
  callers_ = &callers;
}

absl::StatusOr<Gateway::Parts> Gateway::PartsFor(const std::string& secret) const {
  if (!MayBeSecret(secret))
    return absl::UnauthenticatedError("no session and no token: run `snug open`");
  absl::MutexLock lock(&mutex_);
  if (api_ == nullptr) return absl::UnavailableError("the daemon is starting: try again");
  return Parts{*api_, *callers_};
}

absl::StatusOr<Gateway::Entry> Gateway::Enter(const std::string& secret) const {
  ASSIGN_OR_RETURN(const Parts parts, PartsFor(secret));
  ASSIGN_OR_RETURN(Principal who, parts.callers.OfSecret(secret));
  return Entry{parts.api, std::move(who)};
}

absl::Status Gateway::Check(const std::string& secret) const {
  ASSIGN_OR_RETURN(const Parts parts, PartsFor(secret));
  return parts.callers.CheckSecret(secret);
}

absl::Status Gateway::CheckSize(size_t request_bytes) {
  return request_bytes <= kMaxRequestBytes ? absl::OkStatus()
                                           : RequestTooLarge(request_bytes, kMaxRequestBytes);
}

absl::Status Gateway::NoAnswer() {
  return absl::DeadlineExceededError(
      absl::StrCat("the daemon has not answered for ", absl::FormatDuration(kPatience)));
}

absl::StatusOr<std::string> Gateway::MetricsOf(const std::string& secret,
                                               const std::string& job) const {
  ASSIGN_OR_RETURN(const Entry entry, Enter(secret));
  v1::GetJobLogsRequest request;
  request.set_id(job);
  request.set_metrics(true);
  ASSIGN_OR_RETURN(const MessageSource<v1::LogChunk> source,
                   entry.api.GetJobLogs(entry.who, request));
  std::string text;
  while (text.size() <= kMaxMetricsBytes) {
    ASSIGN_OR_RETURN(const Next<v1::LogChunk> next, source());
    if (next.kind != Next<v1::LogChunk>::kMessage) return text;
    text += next.message.text();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("the job's metrics are more than ", kMaxMetricsBytes, " bytes"));
}

absl::StatusOr<std::unique_ptr<FileUpload>> Gateway::Upload(const std::string& secret,
                                                            const std::string& filename) const {
  ASSIGN_OR_RETURN(const Entry entry, Enter(secret));
  v1::UploadHeader header;
  header.set_filename(filename);
  return entry.api.UploadFile(entry.who, header);
}

}  // namespace snug::server
