#include "server/job/errors.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "google/rpc/error_details.pb.h"
#include "server/job/names.h"

namespace snug::server {
namespace {

constexpr absl::string_view kDomain = "snug.dev";
constexpr const char* kMayPass = "may_pass";  // Key of an ErrorInfo's metadata.

template <typename Message>
std::string TypeUrl() {
  return absl::StrCat("type.googleapis.com/", Message::descriptor()->full_name());
}

template <typename Message>
void Attach(absl::Status& status, const Message& message) {
  status.SetPayload(TypeUrl<Message>(), absl::Cord(message.SerializeAsString()));
}

template <typename Message>
std::optional<Message> Detail(const absl::Status& status) {
  absl::optional<absl::Cord> payload = status.GetPayload(TypeUrl<Message>());
  Message message;
  if (!payload || !message.ParseFromString(std::string(*payload))) return std::nullopt;
  return message;
}

void AttachRetry(absl::Status& status, absl::Duration delay) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(absl::ToInt64Seconds(delay));
  Attach(status, retry);
}

// A reader's message may open with the field, as the job file has it: then it is said once.
std::string Description(const Violation& violation) {
  absl::string_view field = violation.field, message = violation.message;
  absl::ConsumePrefix(&field, "spec.");
  absl::ConsumePrefix(&message, absl::StrCat(field, ": "));
  return std::string(message);
}

}  // namespace

absl::Status WithReason(absl::Status status, absl::string_view reason) {
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(reason));
  info.set_domain(std::string(kDomain));
  Attach(status, info);
  return status;
}

absl::Status InvalidRequest(const std::vector<Violation>& violations) {
  google::rpc::BadRequest bad;
  std::vector<std::string> lines;
  for (const Violation& violation : violations) {
    google::rpc::BadRequest::FieldViolation& field = *bad.add_field_violations();
    field.set_field(violation.field);
    field.set_description(Description(violation));
    lines.push_back(absl::StrCat(violation.field, ": ", field.description()));
  }
  absl::Status status = absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
  Attach(status, bad);
  google::rpc::ErrorInfo info;
  info.set_reason(violations.front().reason);
  info.set_domain(std::string(kDomain));
  if (std::all_of(violations.begin(), violations.end(), [](const auto& v) { return v.may_pass; }))
    (*info.mutable_metadata())[kMayPass] = "true";
  Attach(status, info);
  return status;
}

bool MayPass(const absl::Status& status) {
  const auto info = Detail<google::rpc::ErrorInfo>(status);
  return info && info->metadata().count(kMayPass) > 0;
}

absl::Status RequestTooLarge(size_t bytes, size_t most) {
  return InvalidRequest({{"", absl::StrCat("the request has ", bytes, " bytes; at most ", most),
                          "REQUEST_TOO_LARGE"}});
}

absl::Status JobNotFound(absl::string_view id) {
  google::rpc::ResourceInfo resource;
  resource.set_resource_type("snug.v1.Job");
  resource.set_resource_name(IsName(id) ? std::string(id) : absl::StrCat("jobs/", id));
  absl::Status status =
      absl::NotFoundError(absl::StrCat("no job \"", id, "\"; `snug list --all` shows them all"));
  Attach(status, resource);
  return WithReason(std::move(status), "JOB_NOT_FOUND");
}

absl::Status AmbiguousJob(absl::string_view id, int matches) {
  return WithReason(absl::InvalidArgumentError(absl::StrCat("\"", id, "\" begins the ids of ",
                                                            matches, " jobs: give more of it")),
                    "JOB_AMBIGUOUS");
}

absl::Status JobOfManyTenants(absl::string_view id, int tenants) {
  return WithReason(
      absl::InvalidArgumentError(absl::StrCat("\"", id, "\" is the id of jobs of ", tenants,
                                              " tenants: give its name, tenants/TENANT/jobs/", id,
                                              ", or ", id, ".TENANT")),
      "JOB_AMBIGUOUS");
}

absl::Status JobExists(absl::string_view id) {
  return WithReason(absl::AlreadyExistsError(absl::StrCat("job \"", id, "\" exists already")),
                    "JOB_EXISTS");
}

absl::Status RequestIdReused(absl::string_view request_id, absl::string_view job) {
  return WithReason(
      absl::AlreadyExistsError(absl::StrCat("request_id ", request_id, " made job \"", job,
                                            "\" from another body; use a new one")),
      "REQUEST_ID_REUSED");
}

absl::Status WrongState(absl::string_view id, absl::string_view what, absl::string_view state) {
  google::rpc::PreconditionFailure failure;
  google::rpc::PreconditionFailure::Violation& violation = *failure.add_violations();
  violation.set_type("STATE");
  violation.set_subject(absl::StrCat("jobs/", id));
  violation.set_description(absl::StrCat("the job is ", state));
  absl::Status status = absl::FailedPreconditionError(
      absl::StrCat("cannot ", what, " job \"", id, "\": it is ", state));
  Attach(status, failure);
  return WithReason(std::move(status), "WRONG_STATE");
}

absl::Status PlanInfeasible(absl::string_view message, int64_t smallest_bytes) {
  google::rpc::ErrorInfo info;
  info.set_reason("PLAN_INFEASIBLE");
  info.set_domain(std::string(kDomain));
  (*info.mutable_metadata())["smallest_budget_bytes"] = absl::StrCat(smallest_bytes);
  absl::Status status = absl::FailedPreconditionError(message);
  Attach(status, info);
  return status;
}

absl::Status Draining() {
  absl::Status status = absl::UnavailableError("the daemon is shutting down; try again in 5 s");
  AttachRetry(status, absl::Seconds(5));
  return WithReason(std::move(status), "DRAINING");
}

absl::Status QueueFull(absl::string_view what, int64_t limit) {
  google::rpc::QuotaFailure quota;
  google::rpc::QuotaFailure::Violation& violation = *quota.add_violations();
  violation.set_subject("tenants/default");
  violation.set_description(absl::StrCat(what, ": at most ", limit));
  absl::Status status =
      absl::ResourceExhaustedError(absl::StrCat("too many ", what, ": the limit is ", limit));
  Attach(status, quota);
  AttachRetry(status, absl::Seconds(5));
  return WithReason(std::move(status), "QUEUE_FULL");
}

absl::Status QuotaExceeded(const QuotaUse& use) {
  google::rpc::QuotaFailure quota;
  google::rpc::QuotaFailure::Violation& violation = *quota.add_violations();
  violation.set_subject(absl::StrCat("tenants/", use.tenant));
  violation.set_description(
      absl::StrCat(use.field, ": at most ", use.limit, ", this would be ", use.value));
  google::rpc::ErrorInfo info;
  info.set_reason("QUOTA_EXCEEDED");
  info.set_domain(std::string(kDomain));
  (*info.mutable_metadata())["field"] = use.field;
  (*info.mutable_metadata())["limit"] = absl::StrCat(use.limit);
  (*info.mutable_metadata())["value"] = absl::StrCat(use.value);
  absl::Status status = absl::ResourceExhaustedError(
      absl::StrCat("tenant ", use.tenant, " has reached its quota: ", violation.description()));
  Attach(status, quota);
  Attach(status, info);
  return status;
}

absl::Status TooFast(absl::string_view who, int per_second) {
  absl::Status status = absl::ResourceExhaustedError(
      absl::StrCat(who, " calls more than ", per_second, " times a second"));
  AttachRetry(status, absl::Seconds(1));
  return WithReason(std::move(status), "RATE_LIMITED");
}

absl::Status StoreFull() {
  absl::Status status = absl::ResourceExhaustedError(
      "the disk with the state directory is full: nothing can be stored until space is free again");
  AttachRetry(status, absl::Seconds(30));
  return WithReason(std::move(status), "STORE_FULL");
}

std::string ReasonOf(const absl::Status& status) {
  if (auto info = Detail<google::rpc::ErrorInfo>(status)) return info->reason();
  return absl::StatusCodeToString(status.code());
}

std::vector<std::pair<std::string, std::string>> FieldsOf(const absl::Status& status) {
  std::vector<std::pair<std::string, std::string>> fields;
  if (auto bad = Detail<google::rpc::BadRequest>(status))
    for (const auto& violation : bad->field_violations())
      fields.emplace_back(violation.field(), violation.description());
  return fields;
}

v1::Error ToJobError(const absl::Status& status) {
  v1::Error error;
  error.set_reason(ReasonOf(status));
  error.set_message(std::string(status.message()));
  if (auto bad = Detail<google::rpc::BadRequest>(status); bad && bad->field_violations_size() > 0) {
    error.set_field(bad->field_violations(0).field());
    if (bad->field_violations_size() == 1)
      error.set_message(bad->field_violations(0).description());
  }
  return error;
}

}  // namespace snug::server
