#include "server/api/service.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/snug/status_macros.h"
#include "server/api/chunk_stream.h"
#include "server/api/files.h"
#include "server/api/unary_call.h"
#include "server/api/watch.h"
#include "server/data/sha256.h"
#include "server/job/errors.h"
#include "server/job/random_id.h"
#include "server/scheduler/clock.h"

namespace snug::server {
namespace {

constexpr int kDefaultPage = 50;
constexpr int kMaxPage = 1000;

// The same request always gives the same bytes: maps in order of their keys.
std::string BodyHash(v1::CreateJobRequest request) {
  request.clear_request_id();
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    request.SerializeToCodedStream(&coded);
  }
  return Sha256Hex(bytes);
}

absl::Status CheckParent(const std::string& parent) {
  if (parent.empty() || parent == "tenants/default") return absl::OkStatus();
  return InvalidRequest(
      {{"parent", absl::StrCat("\"", parent, "\": there is one tenant, tenants/default"),
        "BAD_FIELD"}});
}

absl::Status CheckCreate(const v1::CreateJobRequest& request) {
  RETURN_IF_ERROR(CheckParent(request.parent()));
  std::vector<Violation> found;
  if (!request.job_id().empty() && !IsJobId(request.job_id()))
    found.push_back({"job_id", "must be [a-z]([a-z0-9-]{0,61}[a-z0-9])?", "BAD_FIELD"});
  if (!request.request_id().empty() && !IsUuid(request.request_id()))
    found.push_back({"request_id", "must be a UUID", "BAD_FIELD"});
  return found.empty() ? absl::OkStatus() : InvalidRequest(found);
}

// What a job would be, for validate_only.
v1::Job Draft(const CheckedJob& checked) {
  v1::Job job;
  job.set_display_name(checked.spec.display_name());
  *job.mutable_spec() = checked.spec;
  return job;
}

template <typename Request>
absl::StatusOr<Request> Parse(const grpc::ByteBuffer& bytes) {
  Request request;
  RETURN_IF_ERROR(Decode(bytes, kMaxRequestBytes, request));
  return request;
}

}  // namespace

grpc::ServerUnaryReactor* FineTuningService::CreateJob(Context*, const Bytes* in, Bytes* out) {
  return UnaryCall::Start<v1::CreateJobRequest, v1::Job>(
      *in, out, [this](const v1::CreateJobRequest& request, Answer<v1::Job> answer) {
        const absl::Status right = CheckCreate(request);
        if (!right.ok()) return answer(right);
        if (request.validate_only()) return Validate(request, answer);
        const bool posted = parts_.pool.Post([this, request, answer] { Create(request, answer); });
        if (!posted) answer(Draining());
      });
}

void FineTuningService::Create(const v1::CreateJobRequest& request, const Answer<v1::Job>& answer) {
  CreateOrder order{.job_id = request.job_id(),
                    .request_id = request.request_id(),
                    .body_sha256 = BodyHash(request)};
  // A repeated request is answered even when its files have gone meanwhile.
  const bool known = parts_.index.FindRequest(request.request_id(), WallMicros()).has_value();
  if (!known) {
    const absl::Status right = parts_.advisor.CheckForm(request.spec());
    if (!right.ok()) return answer(right);
    order.spec = request.spec();
  }
  parts_.scheduler.Create(std::move(order), answer);
}

void FineTuningService::Validate(const v1::CreateJobRequest& request,
                                 const Answer<v1::Job>& answer) {
  const bool posted = parts_.checks.Post({.run = [this, spec = request.spec(), answer] {
    const absl::StatusOr<CheckedJob> checked = parts_.advisor.Validate(spec);
    checked.ok() ? answer(Draft(*checked)) : answer(checked.status());
  }});
  if (!posted) answer(QueueFull("checks that wait", kMaxWaitingChecks));
}

template <typename Request, typename Response>
void FineTuningService::Ask(const Request& request, Answer<Response> answer,
                            absl::StatusOr<Response> (Advisor::*ask)(const Request&)) {
  const bool posted = parts_.checks.Post(
      {.run = [this, request, answer, ask] { answer((parts_.advisor.*ask)(request)); }});
  if (!posted) answer(QueueFull("checks that wait", kMaxWaitingChecks));
}

grpc::ServerUnaryReactor* FineTuningService::PlanJob(Context*, const Bytes* in, Bytes* out) {
  return UnaryCall::Start<v1::PlanJobRequest, v1::PlanJobResponse>(
      *in, out, [this](const v1::PlanJobRequest& request, Answer<v1::PlanJobResponse> answer) {
        Ask(request, std::move(answer), &Advisor::Plan);
      });
}

grpc::ServerUnaryReactor* FineTuningService::PreviewDataset(Context*, const Bytes* in, Bytes* out) {
  using Reply = v1::PreviewDatasetResponse;
  return UnaryCall::Start<v1::PreviewDatasetRequest, Reply>(
      *in, out, [this](const v1::PreviewDatasetRequest& request, Answer<Reply> answer) {
        Ask(request, std::move(answer), &Advisor::Preview);
      });
}

grpc::ServerUnaryReactor* FineTuningService::GetJob(Context*, const Bytes* in, Bytes* out) {
  return UnaryCall::Start<v1::GetJobRequest, v1::Job>(
      *in, out, [this](const v1::GetJobRequest& request, const Answer<v1::Job>& answer) {
        absl::StatusOr<JobPtr> job = parts_.index.Find(request.id());
        if (!job.ok()) return answer(job.status());
        answer(**job);
      });
}

grpc::ServerUnaryReactor* FineTuningService::ListJobs(Context*, const Bytes* in, Bytes* out) {
  return UnaryCall::Start<v1::ListJobsRequest, v1::ListJobsResponse>(
      *in, out,
      [this](const v1::ListJobsRequest& request, const Answer<v1::ListJobsResponse>& answer) {
        answer(List(request));
      });
}

absl::StatusOr<v1::ListJobsResponse> FineTuningService::List(
    const v1::ListJobsRequest& request) const {
  RETURN_IF_ERROR(CheckParent(request.parent()));
  if (request.page_size() < 0)
    return InvalidRequest({{"page_size", "cannot be negative", "BAD_FIELD"}});
  ASSIGN_OR_RETURN(const int64_t after, tokens_.Read(request.page_token(), request.all()));
  const int wanted = request.page_size() == 0 ? kDefaultPage : request.page_size();
  const auto limit = static_cast<size_t>(std::min(wanted, kMaxPage));
  std::vector<ListedJob> listed = parts_.index.List(after, limit + 1, request.all());
  v1::ListJobsResponse response;
  if (listed.size() > limit) {
    listed.resize(limit);
    response.set_next_page_token(tokens_.Make(listed.back().order, request.all()));
  }
  for (const ListedJob& one : listed) *response.add_jobs() = *one.job;
  return response;
}

grpc::ServerUnaryReactor* FineTuningService::CancelJob(Context*, const Bytes* in, Bytes* out) {
  return UnaryCall::Start<v1::CancelJobRequest, v1::Job>(
      *in, out, [this](const v1::CancelJobRequest& request, Answer<v1::Job> answer) {
        parts_.scheduler.Cancel(request.id(), std::move(answer));
      });
}

grpc::ServerUnaryReactor* FineTuningService::GetServerInfo(Context*, const Bytes* in, Bytes* out) {
  return UnaryCall::Start<v1::GetServerInfoRequest, v1::ServerInfo>(
      *in, out, [this](const v1::GetServerInfoRequest&, const Answer<v1::ServerInfo>& answer) {
        v1::ServerInfo info = parts_.info;
        for (v1::Device& device : parts_.index.devices()) *info.add_devices() = std::move(device);
        answer(std::move(info));
      });
}

FineTuningService::Stream* FineTuningService::WatchJob(Context*, const Bytes* in) {
  return StartWatch(*in, parts_.index, parts_.streams);
}

FineTuningService::Stream* FineTuningService::GetJobLogs(Context*, const Bytes* in) {
  absl::StatusOr<v1::GetJobLogsRequest> request = Parse<v1::GetJobLogsRequest>(*in);
  absl::StatusOr<ChunkSource> source = request.ok()
                                           ? LogSource(parts_.index, parts_.state_dir, *request)
                                           : absl::StatusOr<ChunkSource>(request.status());
  return StreamChunks(std::move(source), parts_.pool, parts_.streams);
}

FineTuningService::Stream* FineTuningService::DownloadJob(Context*, const Bytes* in) {
  absl::StatusOr<v1::DownloadJobRequest> request = Parse<v1::DownloadJobRequest>(*in);
  absl::StatusOr<ChunkSource> source = request.ok() ? OutputSource(parts_.index, *request)
                                                    : absl::StatusOr<ChunkSource>(request.status());
  return StreamChunks(std::move(source), parts_.pool, parts_.streams);
}

}  // namespace snug::server
