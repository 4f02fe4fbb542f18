#include "server/api/api.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/snug/status_macros.h"
#include "server/api/calls.h"
#include "server/api/extend.h"
#include "server/api/files.h"
#include "server/api/job_pages.h"
#include "server/api/masks.h"
#include "server/api/metric_history.h"
#include "server/api/sample.h"
#include "server/data/sha256.h"
#include "server/job/check_labels.h"
#include "server/job/errors.h"
#include "server/job/job_ref.h"
#include "server/job/random_id.h"

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

absl::Status CheckCreate(const v1::CreateJobRequest& request, const Principal& who) {
  RETURN_IF_ERROR(CheckParent(request.parent(), TenantOf(who.name())));
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
    const bool shown = job != nullptr && who.MaySee(*job);
    reservation.set_job(shown ? job->id() : "");
    reservation.set_job_name(shown ? job->name() : "");
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
void Api::Change(const Principal& who, const Request& request, Answer<v1::Job> answer,
                 void (Scheduler::*change)(Request, Scheduler::Reply)) {
  Serve(who, request, std::move(answer),
        [&](const Allowed<Request>& call, const Answer<v1::Job>& reply) {
          (parts_.scheduler.*change)(call.request, reply);
        });
}

template <typename Request, typename Response>
void Api::Ask(const Principal& who, const Request& request, Answer<Response> answer,
              absl::StatusOr<Response> (Advisor::*ask)(const Request&, const Principal&)) {
  OnChecks(who, request, std::move(answer), [this, ask](const Allowed<Request>& call) {
    return (parts_.advisor.*ask)(call.request, call.who);
  });
}

void Api::CreateJob(const Principal& who, const v1::CreateJobRequest& request,
                    Answer<v1::Job> answer) {
  using Call = Allowed<v1::CreateJobRequest>;
  Serve(who, request, std::move(answer), [this](Call call, const Answer<v1::Job>& reply) {
    const absl::Status right = CheckCreate(call.request, call.who);
    if (!right.ok()) return reply(right);
    if (call.request.validate_only()) return Validate(call, reply);
    const bool posted = parts_.pool.Post(
        [this, call = std::move(call), reply]() mutable { Create(std::move(call), {}, reply); });
    if (!posted) reply(Draining());
  });
}

// `order` says what the job takes from another, if it does.
void Api::Create(Allowed<v1::CreateJobRequest> call, CreateOrder order,
                 const Answer<v1::Job>& answer) {
  auto& [who, request] = call;
  order.owner = who.name();
  order.job_id = request.job_id();
  order.request_id = request.request_id();
  // Hashed only where another may be compared with it.
  if (!order.request_id.empty()) order.body_sha256 = BodyHash(request);
  // Nobody is told of another's job by a request's id.
  if (!order.request_id.empty() && !who.trusted)
    order.request_id = absl::StrCat(who.name(), "/", order.request_id);
  order.refusal = TakeSpec(who, *request.mutable_spec(), order);
  // A repeated request is answered even when its files have gone meanwhile.
  if (!order.refusal.ok() && order.request_id.empty()) return answer(order.refusal);
  parts_.scheduler.Create(std::move(order), answer);
}

// Checks what is to be trained, and moves it into the order.
absl::Status Api::TakeSpec(const Principal& who, v1::JobSpec& spec, CreateOrder& order) {
  RETURN_IF_ERROR(stored_.Take(order.owner, 1));  // It leaves something, however little.
  const bool extends = order.extends.step > 0;
  RETURN_IF_ERROR(
      parts_.advisor.CheckForm(spec, who, extends ? InputFiles::kDone : InputFiles::kNamed));
  order.spec = std::move(spec);
  return parts_.advisor.NameOrigins(who, order.spec);
}

void Api::Validate(const Allowed<v1::CreateJobRequest>& call, const Answer<v1::Job>& answer) {
  const bool posted =
      parts_.checks.Post({.user = call.who.name(), .run = [this, call, answer] {
                            const absl::StatusOr<CheckedJob> checked =
                                parts_.advisor.Validate(call.request.spec(), call.who);
                            checked.ok() ? answer(Draft(*checked)) : answer(checked.status());
                          }});
  if (!posted) answer(QueueFull("checks that wait", kMaxWaitingChecks));
}

void Api::PlanJob(const Principal& who, const v1::PlanJobRequest& request,
                  Answer<v1::PlanJobResponse> answer) {
  Ask(who, request, std::move(answer), &Advisor::Plan);
}

void Api::PreviewDataset(const Principal& who, const v1::PreviewDatasetRequest& request,
                         Answer<v1::PreviewDatasetResponse> answer) {
  Ask(who, request, std::move(answer), &Advisor::Preview);
}

void Api::GetJob(const Principal& who, const v1::GetJobRequest& request, Answer<v1::Job> answer) {
  Serve(who, request, std::move(answer), [this](const auto& call, const Answer<v1::Job>& reply) {
    const google::protobuf::FieldMask& mask = call.request.read_mask();
    const absl::Status right = CheckReadMask(mask, *v1::Job::descriptor());
    if (!right.ok()) return reply(right);
    const absl::StatusOr<JobPtr> job = parts_.index.Find(call.request.id());
    job.ok() ? reply(Trimmed(**job, mask)) : reply(job.status());
  });
}

void Api::ListJobs(const Principal& who, const v1::ListJobsRequest& request,
                   Answer<v1::ListJobsResponse> answer) {
  OnPool(who, request, std::move(answer),
         [this](const auto& call) -> absl::StatusOr<v1::ListJobsResponse> {
           RETURN_IF_ERROR(CheckParent(call.request.parent(), TenantOf(call.who.name())));
           return ListPage(call.request, call.who, page_tokens_, parts_.index);
         });
}

void Api::CancelJob(const Principal& who, const v1::CancelJobRequest& request,
                    Answer<v1::Job> answer) {
  Change(who, request, std::move(answer), &Scheduler::Cancel);
}

void Api::PauseJob(const Principal& who, const v1::PauseJobRequest& request,
                   Answer<v1::Job> answer) {
  Serve(who, request, std::move(answer), [this](const auto& call, const auto& reply) {
    parts_.scheduler.Pause(call.request.id(), reply);
  });
}

void Api::ResumeJob(const Principal& who, const v1::ResumeJobRequest& request,
                    Answer<v1::Job> answer) {
  Serve(who, request, std::move(answer), [this](const auto& call, const auto& reply) {
    parts_.scheduler.Resume(call.request.id(), reply);
  });
}

void Api::SqueezeJob(const Principal& who, const v1::SqueezeJobRequest& request,
                     Answer<v1::Job> answer) {
  Change(who, request, std::move(answer), &Scheduler::Squeeze);
}

void Api::RelaxJob(const Principal& who, const v1::RelaxJobRequest& request,
                   Answer<v1::Job> answer) {
  Change(who, request, std::move(answer), &Scheduler::Relax);
}

void Api::UpdateJob(const Principal& who, const v1::UpdateJobRequest& request,
                    Answer<v1::Job> answer) {
  Change(who, request, std::move(answer), &Scheduler::Update);
}

void Api::DeleteJob(const Principal& who, const v1::DeleteJobRequest& request,
                    Answer<v1::Job> answer) {
  Serve(who, request, std::move(answer), [this](const auto& call, const auto& reply) {
    parts_.scheduler.Delete(call.request.id(), reply);
  });
}

void Api::RerunJob(const Principal& who, const v1::RerunJobRequest& request,
                   Answer<v1::Job> answer) {
  using Call = Allowed<v1::RerunJobRequest>;
  Serve(who, request, std::move(answer), [this](const Call& call, const Answer<v1::Job>& reply) {
    const bool posted = parts_.pool.Post([this, call, reply] { Rerun(call, reply); });
    if (!posted) reply(Draining());
  });
}

// What a new job with that spec would be told, this one is told, too.
void Api::Rerun(const Allowed<v1::RerunJobRequest>& call, const Answer<v1::Job>& answer) {
  const absl::StatusOr<JobPtr> job = parts_.index.Find(call.request.id());
  if (!job.ok()) return answer(job.status());
  Allowed<v1::CreateJobRequest> create{.who = call.who};
  create.request.set_job_id(call.request.job_id());
  create.request.set_request_id(call.request.request_id());
  *create.request.mutable_spec() = SpecFor(TenantOf(call.who.name()), **job);
  const absl::Status right = CheckCreate(create.request, call.who);
  right.ok()
      ? Create(std::move(create), {.parent_job = RefTo(**job, TenantOf(call.who.name()))}, answer)
      : answer(right);
}

void Api::ExtendJob(const Principal& who, const v1::ExtendJobRequest& request,
                    Answer<v1::Job> answer) {
  using Call = Allowed<v1::ExtendJobRequest>;
  Serve(who, request, std::move(answer), [this](const Call& call, const Answer<v1::Job>& reply) {
    const bool posted = parts_.pool.Post([this, call, reply] { Extend(call, reply); });
    if (!posted) reply(Draining());
  });
}

void Api::Extend(const Allowed<v1::ExtendJobRequest>& call, const Answer<v1::Job>& answer) {
  const absl::StatusOr<JobRecord> parent = parts_.store.FindJob(call.request.id());
  if (!parent.ok()) return answer(parent.status());
  absl::StatusOr<CreateOrder> order =
      OrderToExtend(*parent, call.request, call.who, parts_.state_dir);
  if (!order.ok()) return answer(order.status());
  Allowed<v1::CreateJobRequest> create{.who = call.who};
  create.request.set_job_id(call.request.job_id());
  create.request.set_request_id(call.request.request_id());
  *create.request.mutable_spec() = std::move(order->spec);
  const absl::Status right = CheckCreate(create.request, call.who);
  right.ok() ? Create(std::move(create), *std::move(order), answer) : answer(right);
}

void Api::GetServerInfo(const Principal& who, const v1::GetServerInfoRequest& request,
                        Answer<v1::ServerInfo> answer) {
  Serve(who, request, std::move(answer), [this](const auto& call, const auto& reply) {
    const google::protobuf::FieldMask& mask = call.request.read_mask();
    const absl::Status right = CheckReadMask(mask, *v1::ServerInfo::descriptor());
    if (!right.ok()) return reply(right);
    v1::ServerInfo info = parts_.info;
    for (v1::Device& device : parts_.index.devices()) {
      HideJobsOfOthers(device, call.who, parts_.index);
      *info.add_devices() = std::move(device);
    }
    reply(Trimmed(std::move(info), mask));
  });
}

void Api::GetMetricHistory(const Principal& who, const v1::GetMetricHistoryRequest& request,
                           Answer<v1::GetMetricHistoryResponse> answer) {
  OnChecks(who, request, std::move(answer),
           [this](const auto& call) {
             return MetricHistoryOf(parts_.index, parts_.state_dir, call.request);
           },
           {.small = true});
}

absl::StatusOr<JobPtr> Api::WatchJob(const Principal& who, const v1::WatchJobRequest& request,
                                     const std::shared_ptr<JobWatcher>& watcher) {
  ASSIGN_OR_RETURN(const auto call, Allow(who, request));
  return parts_.index.Watch(call.request.id(), watcher);
}

absl::StatusOr<MessageSource<v1::LogChunk>> Api::GetJobLogs(const Principal& who,
                                                            const v1::GetJobLogsRequest& request) {
  ASSIGN_OR_RETURN(const auto call, Allow(who, request));
  return LogSource(parts_.index, parts_.state_dir, call.request);
}

absl::StatusOr<MessageSource<v1::SampleChunk>> Api::Sample(const Principal& who,
                                                           const v1::SampleRequest& request) {
  ASSIGN_OR_RETURN(const auto call, Allow(who, request));
  return AnswerSource(parts_.answering, call.request);
}

absl::Status Api::MayScrape(const Principal& who) const {
  return Authorise(who, "/metrics", "", parts_.index).status();
}

}  // namespace snug::server
