#include "client/errors.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/error_details.h"
#include "proto/snug/yaml_node.h"

namespace snug::client {
namespace {

constexpr const char* kDetails = "google.rpc.Status";  // Of the payload on a status.

void AddField(const google::rpc::BadRequest& request, std::vector<std::string>* lines) {
  for (const auto& violation : request.field_violations()) {
    lines->push_back(
        absl::StrCat("  ", FilePath(violation.field()), ": ", violation.description()));
  }
}

// Appends what one detail adds to the message, which is lines->front().
void AddDetail(const google::protobuf::Any& detail, std::vector<std::string>* lines) {
  google::rpc::BadRequest request;
  google::rpc::PreconditionFailure failure;
  google::rpc::QuotaFailure quota;
  google::rpc::RetryInfo retry;
  google::rpc::ErrorInfo info;
  if (detail.UnpackTo(&request)) {
    AddField(request, lines);
  } else if (detail.UnpackTo(&failure)) {
    for (const auto& violation : failure.violations()) {
      if (absl::StrContains(lines->front(), violation.description())) continue;
      lines->push_back(absl::StrCat("  ", violation.subject(), ": ", violation.description()));
    }
  } else if (detail.UnpackTo(&quota)) {
    for (const auto& violation : quota.violations()) {
      lines->push_back(absl::StrCat("  ", violation.subject(), ": ", violation.description()));
    }
  } else if (detail.UnpackTo(&retry)) {
    lines->push_back(absl::StrCat("  try again in ", retry.retry_delay().seconds(), " s"));
  } else if (detail.UnpackTo(&info) && !info.reason().empty()) {
    lines->front() += absl::StrCat(" (", info.reason(), ")");
  }
}

// The same detail, for a script.
void AddDetail(const google::protobuf::Any& detail, const LineOf& line_of, Json* error) {
  google::rpc::BadRequest request;
  google::rpc::ErrorInfo info;
  if (detail.UnpackTo(&info) && !info.reason().empty()) (*error)["reason"] = info.reason();
  if (!detail.UnpackTo(&request)) return;
  for (const auto& violation : request.field_violations()) {
    const std::string path = FilePath(violation.field());
    Json field = {{"field", path}};
    if (const int line = line_of ? line_of(path) : 0; line > 0) field["line"] = line;
    field["message"] = violation.description();
    (*error)["fields"].push_back(std::move(field));
  }
  if (request.field_violations_size() == 0) return;
  const Json& first = (*error)["fields"].front();
  (*error)["field"] = first["field"];
  if (first.contains("line")) (*error)["line"] = first["line"];
}

// Of a job file: each with the line that it is in.
void AddFileErrors(const absl::Status& status, Json* error) {
  const std::vector<YamlError> errors = YamlErrors(status);
  if (errors.empty()) return;
  (*error)["reason"] = "BAD_JOB_FILE";
  (*error)["field"] = errors.front().field;
  (*error)["line"] = errors.front().line;
  for (const YamlError& one : errors)
    (*error)["fields"].push_back(
        {{"field", one.field}, {"line", one.line}, {"message", one.message}});
}

std::string CodeInWords(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::UNAVAILABLE:
      return "the daemon is not there any more";
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return "the daemon did not answer in time";
    case grpc::StatusCode::UNIMPLEMENTED:
      return "the daemon does not know this call; is it of another version?";
    default:
      return absl::StrCat("the daemon answered with error code ", static_cast<int>(code));
  }
}

// A daemon's message that only strings its bad fields together is said better by a line for each.
std::string Headline(const std::string& message, const google::rpc::Status& details) {
  google::rpc::BadRequest request;
  for (const google::protobuf::Any& detail : details.details()) {
    if (!detail.UnpackTo(&request)) continue;
    for (const auto& violation : request.field_violations()) {
      if (!absl::StrContains(message, violation.description())) return message;
    }
    const int fields = request.field_violations_size();
    if (fields == 0) return message;
    return fields == 1 ? "a field is wrong" : absl::StrCat(fields, " fields are wrong");
  }
  return message;
}

}  // namespace

std::string FilePath(absl::string_view field) {
  absl::ConsumePrefix(&field, "job.");
  absl::ConsumePrefix(&field, "spec.");
  return std::string(field);
}

absl::Status ToStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const bool is_transport = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                            status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  std::string message = status.error_message();
  if (message.empty()) message = CodeInWords(status.error_code());
  google::rpc::Status details;
  const bool has_details =
      grpc::ExtractErrorDetails(status, &details).ok() && details.details_size() > 0;
  if (is_transport && !has_details) {
    message = absl::StrCat(CodeInWords(status.error_code()), " (", message, ")");
  }
  std::vector<std::string> lines = {Headline(message, details)};
  for (const google::protobuf::Any& detail : details.details()) AddDetail(detail, &lines);
  details.set_message(message);
  absl::Status said(static_cast<absl::StatusCode>(status.error_code()), absl::StrJoin(lines, "\n"));
  if (has_details) said.SetPayload(kDetails, absl::Cord(details.SerializeAsString()));
  return said;
}

Json ErrorToJson(const absl::Status& status, const LineOf& line_of) {
  Json error = {{"reason", absl::StatusCodeToString(status.code())},
                {"message", std::string(status.message())},
                {"field", ""}};
  AddFileErrors(status, &error);
  google::rpc::Status details;
  const auto payload = status.GetPayload(kDetails);
  if (payload && details.ParseFromString(std::string(*payload))) {
    error["message"] = details.message();
    for (const google::protobuf::Any& detail : details.details())
      AddDetail(detail, line_of, &error);
  }
  return Json::object({{"error", std::move(error)}});
}

}  // namespace snug::client
