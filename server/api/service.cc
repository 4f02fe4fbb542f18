#include "server/api/service.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/snug/status_macros.h"
#include "server/api/chunk_stream.h"
#include "server/api/extend.h"
#include "server/api/files.h"
#include "server/api/job_pages.h"
#include "server/api/metric_history.h"
#include "server/api/sample.h"
#include "server/api/serving.h"
#include "server/api/watch.h"
#include "server/data/sha256.h"
#include "server/job/check_labels.h"
#include "server/job/errors.h"
#include "server/job/random_id.h"
#include "server/scheduler/clock.h"

namespace snug::server {
namespace {

// The same request always gives the same bytes: maps in order of their keys.
template <typename Request>
std::string BodyHash(Request request) {
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

absl::Status CheckParent(const std::string& parent, const Principal& who) {
  const std::string own = absl::StrCat("tenants/", TenantOf(who.name()));
  if (parent.empty() || parent == own) return absl::OkStatus();
  return InvalidRequest(
      {{"parent", absl::StrCat("\"", parent, "\": your tenant is ", own), "BAD_FIELD"}});
}

absl::Status CheckCreate(const v1::CreateJobRequest& request, const Principal& who) {
  RETURN_IF_ERROR(CheckParent(request.parent(), who));
  std::vector<Violation> found;
  if (!request.job_id().empty() && !IsJobId(request.job_id()))
    found.push_back({"job_id", "must be [a-z]([a-z0-9-]{0,61}[a-z0-9])?", "BAD_FIELD"});
  if (!request.request_id().empty() && !IsUuid(request.request_id()))
    found.push_back({"request_id", "must be a UUID", "BAD_FIELD"});
  if (!found.empty()) return InvalidRequest(found);
  return CheckLabels("spec.labels", request.spec().labels());
}

// How much is promised anybody may know; to which job, who may see that.
void HideJobsOfOthers(v1::Device& device, const Principal& who, const JobIndex& index) {
  for (v1::Reservation& reservation : *device.mutable_reservations()) {
    const JobPtr job = index.FindLive(reservation.job());
    if (job == nullptr || !who.MaySee(*job)) reservation.clear_job();
  }
}

// What a job would be, for validate_only.
v1::Job Draft(const CheckedJob& checked) {
  v1::Job job;
  job.set_display_name(checked.spec.display_name());
  *job.mutable_spec() = checked.spec;
  return job;
}

}  // namespace

template <typename Request>
grpc::ServerUnaryReactor* FineTuningService::Change(const Call& call,
                                                    void (Scheduler::*change)(Request,
                                                                              Scheduler::Reply)) {
  return Serve<Request, v1::Job>(
      call, [this, change](const Allowed<Request>& allowed, Answer<v1::Job> answer) {
        (parts_.scheduler.*change)(allowed.request, std::move(answer));
      });
}

grpc::ServerUnaryReactor* FineTuningService::CreateJob(Context* context, const Bytes* in,
                                                       Bytes* out) {
  using Create = Allowed<v1::CreateJobRequest>;
  return Serve<v1::CreateJobRequest, v1::Job>(
      {context, "CreateJob", in, out}, [this](const Create& call, Answer<v1::Job> answer) {
        const absl::Status right = CheckCreate(call.request, call.who);
        if (!right.ok()) return answer(right);
        if (call.request.validate_only()) return Validate(call, answer);
        const bool posted = parts_.pool.Post([this, call, answer] { DoCreate(call, {}, answer); });
        if (!posted) answer(Draining());
      });
}

// `order` says what the job takes from another, if it does.
void FineTuningService::DoCreate(const Allowed<v1::CreateJobRequest>& call, CreateOrder order,
                                 const Answer<v1::Job>& answer) {
  const auto& [request, who] = call;
  order.owner = who.name();
  order.job_id = request.job_id();
  order.request_id = request.request_id();
  order.body_sha256 = BodyHash(request);
  // Nobody is told of another's job by a request's id.
  if (!order.request_id.empty() && !who.trusted)
    order.request_id = absl::StrCat(who.name(), "/", order.request_id);
  // A repeated request is answered even when its files have gone meanwhile.
  const auto known = parts_.index.FindRequest(order.request_id, WallMicros());
  if (!known.ok()) return answer(known.status());
  if (!*known) {
    const bool extends = order.extends.step > 0;
    const InputFiles inputs = extends ? InputFiles::kDone : InputFiles::kNeeded;
    const absl::Status right = parts_.advisor.CheckForm(request.spec(), who, inputs);
    if (!right.ok()) return answer(right);
    order.spec = request.spec();
  }
  parts_.scheduler.Create(std::move(order), answer);
}

void FineTuningService::Validate(const Allowed<v1::CreateJobRequest>& call,
                                 const Answer<v1::Job>& answer) {
  const bool posted =
      parts_.checks.Post({.user = call.who.name(), .run = [this, call, answer] {
                            const absl::StatusOr<CheckedJob> checked =
                                parts_.advisor.Validate(call.request.spec(), call.who);
                            checked.ok() ? answer(Draft(*checked)) : answer(checked.status());
                          }});
  if (!posted) answer(QueueFull("checks that wait", kMaxWaitingChecks));
}

template <typename Request, typename Response>
void FineTuningService::Ask(const Allowed<Request>& call, Answer<Response> answer,
                            absl::StatusOr<Response> (Advisor::*ask)(const Request&,
                                                                     const Principal&)) {
  const bool posted =
      parts_.checks.Post({.user = call.who.name(), .run = [this, call, answer, ask] {
                            answer((parts_.advisor.*ask)(call.request, call.who));
                          }});
  if (!posted) answer(QueueFull("checks that wait", kMaxWaitingChecks));
}

grpc::ServerUnaryReactor* FineTuningService::PlanJob(Context* context, const Bytes* in,
                                                     Bytes* out) {
  using Reply = v1::PlanJobResponse;
  return Serve<v1::PlanJobRequest, Reply>(
      {context, "PlanJob", in, out},
      [this](const Allowed<v1::PlanJobRequest>& call, Answer<Reply> answer) {
        Ask(call, std::move(answer), &Advisor::Plan);
      });
}

grpc::ServerUnaryReactor* FineTuningService::PreviewDataset(Context* context, const Bytes* in,
                                                            Bytes* out) {
  using Reply = v1::PreviewDatasetResponse;
  return Serve<v1::PreviewDatasetRequest, Reply>(
      {context, "PreviewDataset", in, out},
      [this](const Allowed<v1::PreviewDatasetRequest>& call, Answer<Reply> answer) {
        Ask(call, std::move(answer), &Advisor::Preview);
      });
}

grpc::ServerUnaryReactor* FineTuningService::GetJob(Context* context, const Bytes* in, Bytes* out) {
  return Serve<v1::GetJobRequest, v1::Job>(
      {context, "GetJob", in, out},
      [this](const Allowed<v1::GetJobRequest>& call, const Answer<v1::Job>& answer) {
        absl::StatusOr<JobPtr> job = parts_.index.Find(call.request.id());
        if (!job.ok()) return answer(job.status());
        answer(**job);
      });
}

grpc::ServerUnaryReactor* FineTuningService::ListJobs(Context* context, const Bytes* in,
                                                      Bytes* out) {
  using Reply = v1::ListJobsResponse;
  return Serve<v1::ListJobsRequest, Reply>(
      {context, "ListJobs", in, out},
      [this](const Allowed<v1::ListJobsRequest>& call, const Answer<Reply>& answer) {
        const absl::Status right = CheckParent(call.request.parent(), call.who);
        if (!right.ok()) return answer(right);
        const bool posted = parts_.pool.Post([this, call, answer] {
          answer(ListPage(call.request, call.who, page_tokens_, parts_.index));
        });
        if (!posted) answer(Draining());
      });
}

grpc::ServerUnaryReactor* FineTuningService::CancelJob(Context* context, const Bytes* in,
                                                       Bytes* out) {
  return Change({context, "CancelJob", in, out}, &Scheduler::Cancel);
}

grpc::ServerUnaryReactor* FineTuningService::PauseJob(Context* context, const Bytes* in,
                                                      Bytes* out) {
  return Serve<v1::PauseJobRequest, v1::Job>(
      {context, "PauseJob", in, out}, [this](const auto& call, Answer<v1::Job> answer) {
        parts_.scheduler.Pause(call.request.id(), std::move(answer));
      });
}

grpc::ServerUnaryReactor* FineTuningService::ResumeJob(Context* context, const Bytes* in,
                                                       Bytes* out) {
  return Serve<v1::ResumeJobRequest, v1::Job>(
      {context, "ResumeJob", in, out}, [this](const auto& call, Answer<v1::Job> answer) {
        parts_.scheduler.Resume(call.request.id(), std::move(answer));
      });
}

grpc::ServerUnaryReactor* FineTuningService::SqueezeJob(Context* context, const Bytes* in,
                                                        Bytes* out) {
  return Change({context, "SqueezeJob", in, out}, &Scheduler::Squeeze);
}

grpc::ServerUnaryReactor* FineTuningService::RelaxJob(Context* context, const Bytes* in,
                                                      Bytes* out) {
  return Change({context, "RelaxJob", in, out}, &Scheduler::Relax);
}

grpc::ServerUnaryReactor* FineTuningService::UpdateJob(Context* context, const Bytes* in,
                                                       Bytes* out) {
  return Change({context, "UpdateJob", in, out}, &Scheduler::Update);
}

grpc::ServerUnaryReactor* FineTuningService::DeleteJob(Context* context, const Bytes* in,
                                                       Bytes* out) {
  return Serve<v1::DeleteJobRequest, v1::Job>(
      {context, "DeleteJob", in, out}, [this](const auto& call, Answer<v1::Job> answer) {
        parts_.scheduler.Delete(call.request.id(), std::move(answer));
      });
}

grpc::ServerUnaryReactor* FineTuningService::RerunJob(Context* context, const Bytes* in,
                                                      Bytes* out) {
  return Serve<v1::RerunJobRequest, v1::Job>(
      {context, "RerunJob", in, out},
      [this](const Allowed<v1::RerunJobRequest>& call, const Answer<v1::Job>& answer) {
        const bool posted = parts_.pool.Post([this, call, answer] { Rerun(call, answer); });
        if (!posted) answer(Draining());
      });
}

// What a new job with that spec would be told, this one is told, too.
void FineTuningService::Rerun(const Allowed<v1::RerunJobRequest>& call,
                              const Answer<v1::Job>& answer) {
  const absl::StatusOr<JobPtr> job = parts_.index.Find(call.request.id());
  if (!job.ok()) return answer(job.status());
  Allowed<v1::CreateJobRequest> create{.who = call.who};
  create.request.set_job_id(call.request.job_id());
  create.request.set_request_id(call.request.request_id());
  *create.request.mutable_spec() = (*job)->spec();
  const absl::Status right = CheckCreate(create.request, call.who);
  right.ok() ? DoCreate(create, {.parent_job = (*job)->id()}, answer) : answer(right);
}

grpc::ServerUnaryReactor* FineTuningService::ExtendJob(Context* context, const Bytes* in,
                                                       Bytes* out) {
  return Serve<v1::ExtendJobRequest, v1::Job>(
      {context, "ExtendJob", in, out},
      [this](const Allowed<v1::ExtendJobRequest>& call, const Answer<v1::Job>& answer) {
        const bool posted = parts_.pool.Post([this, call, answer] { Extend(call, answer); });
        if (!posted) answer(Draining());
      });
}

void FineTuningService::Extend(const Allowed<v1::ExtendJobRequest>& call,
                               const Answer<v1::Job>& answer) {
  const absl::StatusOr<JobRecord> parent = parts_.store.FindJob(call.request.id());
  if (!parent.ok()) return answer(parent.status());
  absl::StatusOr<CreateOrder> order = OrderToExtend(*parent, call.request, parts_.state_dir);
  if (!order.ok()) return answer(order.status());
  Allowed<v1::CreateJobRequest> create{.who = call.who};
  create.request.set_job_id(call.request.job_id());
  create.request.set_request_id(call.request.request_id());
  *create.request.mutable_spec() = order->spec;
  const absl::Status right = CheckCreate(create.request, call.who);
  right.ok() ? DoCreate(create, *std::move(order), answer) : answer(right);
}

grpc::ServerUnaryReactor* FineTuningService::GetServerInfo(Context* context, const Bytes* in,
                                                           Bytes* out) {
  using Request = v1::GetServerInfoRequest;
  return Serve<Request, v1::ServerInfo>(
      {context, "GetServerInfo", in, out},
      [this](const Allowed<Request>& call, const Answer<v1::ServerInfo>& answer) {
        v1::ServerInfo info = parts_.info;
        for (v1::Device& device : parts_.index.devices()) {
          HideJobsOfOthers(device, call.who, parts_.index);
          *info.add_devices() = std::move(device);
        }
        answer(std::move(info));
      });
}

grpc::ServerUnaryReactor* FineTuningService::ListCheckpoints(Context* context, const Bytes* in,
                                                             Bytes* out) {
  using Request = v1::ListCheckpointsRequest;
  using Reply = v1::ListCheckpointsResponse;
  return OnPool<Request, Reply>(
      {context, "ListCheckpoints", in, out}, [this](const Allowed<Request>& call) {
        return CheckpointsOf(parts_.index, parts_.state_dir, call.request);
      });
}

grpc::ServerUnaryReactor* FineTuningService::GetMetricHistory(Context* context, const Bytes* in,
                                                              Bytes* out) {
  using Request = v1::GetMetricHistoryRequest;
  using Reply = v1::GetMetricHistoryResponse;
  return OnPool<Request, Reply>(
      {context, "GetMetricHistory", in, out}, [this](const Allowed<Request>& call) {
        return MetricHistoryOf(parts_.index, parts_.state_dir, call.request);
      });
}

FineTuningService::Stream* FineTuningService::WatchJob(Context* context, const Bytes* in) {
  return StartWatch(Open<v1::WatchJobRequest>({context, "WatchJob", in}), parts_.index,
                    parts_.streams);
}

FineTuningService::Stream* FineTuningService::GetJobLogs(Context* context, const Bytes* in) {
  const auto request = Open<v1::GetJobLogsRequest>({context, "GetJobLogs", in});
  absl::StatusOr<ChunkSource> source = request.ok()
                                           ? LogSource(parts_.index, parts_.state_dir, *request)
                                           : absl::StatusOr<ChunkSource>(request.status());
  return StreamChunks(std::move(source), parts_.pool, parts_.streams);
}

FineTuningService::Stream* FineTuningService::DownloadJob(Context* context, const Bytes* in) {
  const auto request = Open<v1::DownloadJobRequest>({context, "DownloadJob", in});
  absl::StatusOr<ChunkSource> source = request.ok()
                                           ? OutputSource(parts_.index, parts_.state_dir, *request)
                                           : absl::StatusOr<ChunkSource>(request.status());
  return StreamChunks(std::move(source), parts_.pool, parts_.streams);
}

FineTuningService::Stream* FineTuningService::Sample(Context* context, const Bytes* in) {
  const auto request = Open<v1::SampleRequest>({context, "Sample", in});
  absl::StatusOr<ChunkSource> source = request.ok() ? AnswerSource(parts_.answering, *request)
                                                    : absl::StatusOr<ChunkSource>(request.status());
  return StreamChunks(std::move(source), parts_.pool, parts_.streams);
}

}  // namespace snug::server
