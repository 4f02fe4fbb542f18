#include "server/scheduler/creation.h"

#include <filesystem>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/job_key.h"
#include "server/job/job_ref.h"
#include "server/job/log.h"
#include "server/job/names.h"
#include "server/job/random_id.h"
#include "server/node/attempt_files.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/core.h"

namespace snug::server {
namespace {

constexpr const char* kWaitsToBePrepared = "waits to be prepared";
// Of 16 million ids per display name; all taken means something else is wrong.
constexpr int kIdDraws = 8;

// It goes on behind its parent's checkpoint, on the data that this one was prepared from.
void BeginBehind(const Extension& extends, JobRecord& record) {
  record.train_data = extends.train_data;
  record.eval_data = extends.eval_data;
  record.job.set_extends_step(extends.step);
  *record.job.mutable_dataset() = extends.dataset;
  v1::Progress& progress = *record.job.mutable_progress();
  progress.set_global_step(extends.step);
  progress.set_max_steps(record.job.spec().training().max_steps());
}

}  // namespace

void Creation::Create(CreateOrder order, const Reply& reply) {
  Draw(std::move(order), reply, kIdDraws);
}

absl::Status Creation::MayBeMade(const CreateOrder& order) const {
  const int64_t limit = core_.settings.limits.max_live_jobs;
  if (static_cast<int64_t>(core_.entries.size() + core_.coming.size()) >= limit)
    return QueueFull("jobs that have not ended", limit);
  RETURN_IF_ERROR(core_.tenant_use.MayCreate(order));
  // Its parent's may have been removed since it was looked for.
  if (order.extends.step > 0 &&
      !std::filesystem::exists(CheckpointsDir(core_.settings.state_dir, order.extends.job)))
    return WrongState(order.parent_job, "extend", "without checkpoints by now");
  return absl::OkStatus();
}

// The store says whether the request or the id is known: it is the only one that knows them all. A
// request that is repeated is answered also where no more jobs may be: its first may be the last.
void Creation::Draw(CreateOrder order, const Reply& reply, int draws_left) {
  const int64_t now_us = WallMicros();
  auto made = std::make_shared<NewJob>();
  made->refusal = order.refusal.ok() ? MayBeMade(order) : order.refusal;
  if (!made->refusal.ok() && order.request_id.empty()) return reply(made->refusal);
  made->record.order = next_order_++;
  v1::Job& job = made->record.job;
  *job.mutable_spec() = std::move(order.spec);
  const v1::JobSpec& spec = job.spec();
  job.set_id(order.job_id.empty() ? NewJobId(spec.display_name()) : order.job_id);
  const std::string tenant = TenantOf(order.owner);
  job.set_name(JobName(tenant, job.id()));
  if (std::string key = KeyFor(tenant, job.id()); key != job.id()) job.set_key(std::move(key));
  job.set_display_name(spec.display_name().empty() ? job.id() : spec.display_name());
  job.set_state(v1::Job::STATE_PREPARING);
  job.set_reason(kWaitsToBePrepared);
  job.set_priority(spec.priority());
  *job.mutable_labels() = spec.labels();
  job.set_parent_job(order.parent_job);
  job.mutable_plan_changes();
  job.set_owner(order.owner);
  if (order.extends.step > 0) BeginBehind(order.extends, made->record);
  *job.mutable_create_time() = google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(now_us);
  made->event = {
      .job = KeyOf(job), .to = v1::Job::STATE_PREPARING, .reason = job.reason(), .wall_us = now_us};
  if (!order.request_id.empty())
    made->request =
        RequestRecord{order.request_id, order.body_sha256, KeyOf(job),
                      now_us + absl::ToInt64Microseconds(core_.settings.limits.request_memory)};
  core_.coming[made.get()] = NamesOfReferred(job);
  core_.tenant_use.Enter(order.owner);
  auto kept = std::make_shared<CreateOrder>(std::move(order));
  core_.store.Create(made, [this, kept, reply, draws_left](const std::shared_ptr<NewJob>& job,
                                                           const absl::Status& status) {
    core_.inbox.PostResult([this, job, kept, reply, draws_left, status] {
      core_.coming.erase(job.get());
      if (!status.ok() || job->known || !job->refusal.ok()) core_.tenant_use.Leave(kept->owner);
      if (absl::IsAlreadyExists(status) && kept->job_id.empty() && draws_left > 1) {
        kept->spec = std::move(*job->record.job.mutable_spec());
        return Draw(std::move(*kept), reply, draws_left - 1);
      }
      if (absl::IsAlreadyExists(status)) return reply(JobExists(job->record.job.id()));
      status.ok() ? OnCreated(job, std::move(*kept), reply) : reply(status);
    });
  });
}

void Creation::OnCreated(const std::shared_ptr<NewJob>& job, CreateOrder order,
                         const Reply& reply) {
  if (job->known) {
    if (job->known->body_sha256 != order.body_sha256)
      return reply(RequestIdReused(order.request_id, IdIn(job->known->job)));
    absl::StatusOr<JobPtr> known = core_.index.Find(job->known->job);
    return known.ok() ? reply(**known) : reply(known.status());
  }
  if (!job->refusal.ok()) return reply(job->refusal);
  auto entry = std::make_unique<Entry>();
  entry->record = std::move(job->record);
  entry->counted_steps = entry->record.job.progress().global_step();
  const std::string key = entry->key();
  core_.metrics.CountJobs(v1::Job::STATE_PREPARING, 1);
  core_.readying.Await(*entry);
  core_.Show(*entry);
  reply(entry->record.job);
  core_.entries[key] = std::move(entry);
}

}  // namespace snug::server
