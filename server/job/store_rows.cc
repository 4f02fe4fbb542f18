#include "server/job/store_rows.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/util/time_util.h"
#include "google/protobuf/wire_format_lite.h"
#include "proto/snug/status_macros.h"
#include "server/data/sha256.h"
#include "server/job/job_key.h"
#include "server/job/job_ref.h"
#include "server/job/principal.h"
#include "snug/v1/job.pb.h"

namespace snug::server {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::util::TimeUtil;

// Before a device's id: a key of the table meta.
constexpr const char* kDrained = "drained ";
constexpr const char* kMove = "move";

// The columns that change, in the order of WriteJob's values; then those of a job that is ready,
// which are written with them: a row once, not three times.
constexpr const char* kUpdateJob =
    "UPDATE jobs SET state=?2, view=?3, infra_failures=?4, oom_failures=?5, not_before_us=?6, "
    "last_resume_step=?7, train_data=?8, eval_data=?9, output_dir=?10, ended_us=?11";
constexpr const char* kReadyColumns = ", spec=?12, spec_sha256=?13, plans=?14";
constexpr const char* kOfThatJob = " WHERE id=?1";
constexpr const char* kInsertJob =
    "INSERT INTO jobs(id, tenant, state, arrival, spec, spec_sha256, view, infra_failures, "
    "oom_failures, not_before_us, last_resume_step, train_data, eval_data, output_dir, "
    "display_name, created_us, ended_us, owner, request_id, body_sha256, request_expires_us) "
    "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,nullif(?19,''),?20,?21)";

// The job's bytes without its spec's field, which has a column of its own. A copy of the job, to
// take the field from, costs more.
Blob ViewOf(const JobRecord& record) {
  const std::string whole = record.job.SerializeAsString();
  CodedInputStream fields(reinterpret_cast<const uint8_t*>(whole.data()),
                          static_cast<int>(whole.size()));
  Blob view;
  int begin = 0;
  while (const uint32_t tag = fields.ReadTag()) {
    WireFormatLite::SkipField(&fields, tag);
    const int end = fields.CurrentPosition();
    if (WireFormatLite::GetTagFieldNumber(tag) != v1::Job::kSpecFieldNumber)
      view.bytes.append(whole, begin, end - begin);
    begin = end;
  }
  return view;
}

absl::Status WriteLabels(Database& database, const v1::Job& job) {
  RETURN_IF_ERROR(database.Run("DELETE FROM labels WHERE job=?", {KeyOf(job)}));
  for (const auto& [key, value] : job.labels())
    RETURN_IF_ERROR(database.Run("INSERT INTO labels VALUES(?,?,?)", {KeyOf(job), key, value}));
  return absl::OkStatus();
}

// A tenant's job of a version before keys has its id for its key, so that the new key is free.
absl::Status CheckNoOlder(Database& database, const v1::Job& job) {
  absl::Status status;
  RETURN_IF_ERROR(database.Query("SELECT 1 FROM jobs WHERE id=? AND tenant=?",
                                 {job.id(), TenantOf(job.owner())}, [&](const Row&) {
                                   status = absl::AlreadyExistsError("its tenant has one");
                                   return absl::OkStatus();
                                 }));
  return status;
}

absl::Status AddOrigins(Database& database, const v1::Job& job) {
  for (const std::string& origin : NamesOfOrigins(job))
    RETURN_IF_ERROR(
        database.Run("INSERT OR IGNORE INTO origins VALUES(?,?)", {origin, KeyOf(job)}));
  return absl::OkStatus();
}

absl::Status AddJob(Database& database, const JobRecord& record, const RequestRecord& request) {
  const std::string spec = record.job.spec().SerializeAsString();
  const v1::Job& job = record.job;
  if (record.key() != job.id()) RETURN_IF_ERROR(CheckNoOlder(database, job));
  RETURN_IF_ERROR(database.Run(kInsertJob, {record.key(),
                                            TenantOf(job.owner()),
                                            int64_t{record.state()},
                                            record.order,
                                            Blob{spec},
                                            Sha256Hex(spec),
                                            ViewOf(record),
                                            int64_t{record.infra_failures},
                                            int64_t{record.oom_failures},
                                            record.not_before_us,
                                            record.last_resume_step,
                                            record.train_data,
                                            record.eval_data,
                                            record.output_dir,
                                            job.display_name(),
                                            TimeUtil::TimestampToMicroseconds(job.create_time()),
                                            TimeUtil::TimestampToMicroseconds(job.end_time()),
                                            job.owner(),
                                            request.request_id,
                                            request.body_sha256,
                                            request.expires_us}));
  RETURN_IF_ERROR(AddOrigins(database, job));
  return job.labels().empty() ? absl::OkStatus() : WriteLabels(database, job);
}

// Not INSERT OR REPLACE: that deletes the old row first, past the trigger that guards terminal
// states.
absl::Status WriteJob(Database& database, const Change& change) {
  const JobRecord& record = *change.job;
  std::vector<SqlValue> values = {record.key(),
                                  int64_t{record.state()},
                                  ViewOf(record),
                                  int64_t{record.infra_failures},
                                  int64_t{record.oom_failures},
                                  record.not_before_us,
                                  record.last_resume_step,
                                  record.train_data,
                                  record.eval_data,
                                  record.output_dir,
                                  TimeUtil::TimestampToMicroseconds(record.job.end_time())};
  if (change.plans) {
    const std::string spec = record.job.spec().SerializeAsString();
    values.insert(values.end(), {Blob{spec}, Sha256Hex(spec), change.plans->sha256});
  }
  const std::string update =
      absl::StrCat(kUpdateJob, change.plans ? kReadyColumns : "", kOfThatJob);
  RETURN_IF_ERROR(database.Run(update, values));
  if (database.changes() > 0) return absl::OkStatus();
  RETURN_IF_ERROR(AddJob(database, record, {}));
  return change.plans ? database.Run(update, values) : absl::OkStatus();
}

absl::Status WritePlans(Database& database, const PlansRecord& plans) {
  bool known = false;  // As of most jobs: then the plans, which are large, are not handed over.
  RETURN_IF_ERROR(database.Query("SELECT 1 FROM plans WHERE sha256=? AND made_by=?",
                                 {plans.sha256, plans.made_by}, [&](const Row&) {
                                   known = true;
                                   return absl::OkStatus();
                                 }));
  if (known) return absl::OkStatus();
  return database.Run("INSERT OR REPLACE INTO plans VALUES(?,?,?)",
                      {plans.sha256, plans.made_by, Blob{plans.plans}});
}

absl::Status WriteAttempt(Database& database, const AttemptRecord& attempt) {
  return database.Run(
      "INSERT INTO attempts VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13) "
      "ON CONFLICT(job, epoch) DO UPDATE SET state=?3, shim_pid=?7, plan=?8, cap_bytes=?9, "
      "exit=?13",
      {attempt.job, int64_t{attempt.epoch}, static_cast<int64_t>(attempt.state), attempt.nonce,
       attempt.device, attempt.boot_id, attempt.shim_pid, Blob{attempt.plan.SerializeAsString()},
       attempt.cap_bytes, attempt.resume_from, attempt.resume_step, attempt.created_us,
       attempt.exit});
}

// Times of events rise with their numbers, also where the clock has been set back: then they stand
// nearly still until it has caught up.
absl::Status WriteEvent(Database& database, const EventRecord& event) {
  return database.Run(  // NULL: SQLite numbers the row max(seq) + 1.
      "INSERT INTO events VALUES(NULL, ?1, ?2, ?3, ?4, max(?5, coalesce("
      "(SELECT wall_us + 1 FROM events ORDER BY seq DESC LIMIT 1), ?5)))",
      {event.job, int64_t{event.from}, int64_t{event.to}, event.reason, event.wall_us});
}

absl::Status WriteCheckpoint(Database& database, const CheckpointRecord& checkpoint) {
  return database.Run(
      "INSERT OR REPLACE INTO checkpoints VALUES(?,?,?,?,?,?,?)",
      {checkpoint.job, checkpoint.step, int64_t{checkpoint.epoch}, checkpoint.manifest_sha256,
       checkpoint.dir, checkpoint.bytes, int64_t{checkpoint.state}});
}

absl::Status WriteReservation(Database& database, const Change& change) {
  if (change.reserve) {
    const Reservation& reserve = *change.reserve;
    RETURN_IF_ERROR(
        database.Run("INSERT INTO reservations VALUES(?,?,?,?) "
                     "ON CONFLICT(job, epoch) DO UPDATE SET bytes=excluded.bytes",
                     {reserve.device, reserve.job, int64_t{reserve.epoch}, reserve.bytes}));
  }
  if (!change.release) return absl::OkStatus();
  return database.Run("DELETE FROM reservations WHERE job=? AND epoch=?",
                      {change.attempt->job, int64_t{change.attempt->epoch}});
}

absl::Status WriteDrain(Database& database, const DrainRecord& drain) {
  const std::string key = kDrained + drain.device;
  if (!drain.drained) return database.Run("DELETE FROM meta WHERE key=?", {key});
  return database.Run("INSERT OR REPLACE INTO meta VALUES(?,?)",
                      {key, std::string(drain.move ? kMove : "stay")});
}

absl::Status LoadDrains(Database& database, StoredState& state) {
  const std::string prefix = kDrained;
  return database.Query("SELECT key, value FROM meta WHERE substr(key, 1, length(?1))=?1", {prefix},
                        [&](const Row& row) {
                          state.drains.push_back({.device = row.Text(0).substr(prefix.size()),
                                                  .move = row.Text(1) == kMove});
                          return absl::OkStatus();
                        });
}

absl::Status LoadJobs(Database& database, StoredState& state) {
  RETURN_IF_ERROR(database.Query(
      absl::StrCat("SELECT ", kJobColumns,
                   ", plans FROM jobs WHERE state IN (1, 2, 3, 4, 5, 6, 7) ORDER BY arrival"),
      [&](const Row& row) {
        ASSIGN_OR_RETURN(JobRecord record, ReadJob(row));
        if (const std::string plans = row.Text(12); !plans.empty())
          state.plans_of[record.key()] = plans;
        state.jobs.push_back(std::move(record));
        return absl::OkStatus();
      }));
  RETURN_IF_ERROR(
      database.Query("SELECT state, count(*) FROM jobs GROUP BY state", [&](const Row& row) {
        state.counts[static_cast<JobState>(row.Int(0))] = row.Int(1);
        return absl::OkStatus();
      }));
  ASSIGN_OR_RETURN(state.last_order, database.QueryInt("SELECT max(arrival) FROM jobs"));
  return absl::OkStatus();
}

// Those that no waiting job goes by are forgotten.
absl::Status LoadPlans(Database& database, StoredState& state) {
  RETURN_IF_ERROR(
      database.Run("DELETE FROM plans WHERE sha256 NOT IN "
                   "(SELECT plans FROM jobs WHERE state IN (1, 2, 3, 4, 5, 6, 7))",
                   {}));
  return database.Query("SELECT sha256, made_by, plans FROM plans", [&](const Row& row) {
    state.plans[row.Text(0)] = {row.Text(0), row.Text(1), row.Bytes(2)};
    return absl::OkStatus();
  });
}

absl::Status LoadAttempts(Database& database, StoredState& state) {
  return database.Query(
      "SELECT job, epoch, state, nonce, device, boot_id, shim_pid, plan, cap_bytes, resume_from, "
      "resume_step, created_us, exit FROM attempts WHERE state < 6",
      [&](const Row& row) {
        AttemptRecord attempt;
        attempt.job = row.Text(0);
        attempt.epoch = static_cast<int>(row.Int(1));
        attempt.state = static_cast<AttemptState>(row.Int(2));
        attempt.nonce = row.Text(3);
        attempt.device = row.Text(4);
        attempt.boot_id = row.Text(5);
        attempt.shim_pid = row.Int(6);
        if (!attempt.plan.ParseFromString(row.Bytes(7)))
          return absl::DataLossError("a row of the store's table attempts does not parse");
        attempt.cap_bytes = row.Int(8);
        attempt.resume_from = row.Text(9);
        attempt.resume_step = row.Int(10);
        attempt.created_us = row.Int(11);
        attempt.exit = row.Text(12);
        state.open_attempts.push_back(std::move(attempt));
        return absl::OkStatus();
      });
}

absl::Status LoadReservations(Database& database, StoredState& state) {
  return database.Query("SELECT device, job, epoch, bytes FROM reservations", [&](const Row& row) {
    state.reservations.push_back(
        {row.Text(0), row.Text(1), static_cast<int>(row.Int(2)), row.Int(3)});
    return absl::OkStatus();
  });
}

absl::Status WriteToken(Database& database, const TokenRecord& token) {
  return database.Run(
      "INSERT INTO tokens VALUES(?1,?2,?3,?4,?5,?6,?7) "
      "ON CONFLICT(id) DO UPDATE SET revoked_us=excluded.revoked_us",
      {token.id, token.tenant, int64_t{token.role}, token.sha256, token.created_us,
       token.expires_us, token.revoked_us});
}

// Of a job's end: its webhook is to hear of it.
absl::Status ExpectCall(Database& database, const v1::Job& job, const EventRecord& event) {
  if (job.spec().webhook().empty() || !IsTerminal(event.to)) return absl::OkStatus();
  return database.Run("INSERT INTO webhooks VALUES(?,?,0)", {KeyOf(job), event.wall_us});
}

absl::Status WriteWebhook(Database& database, const WebhookRecord& webhook) {
  if (webhook.done) return database.Run("DELETE FROM webhooks WHERE job=?", {webhook.job});
  return database.Run("UPDATE webhooks SET due_us=?2, tries=?3 WHERE job=?1",
                      {webhook.job, webhook.due_us, webhook.tries});
}

absl::Status DeleteJob(Database& database, const std::string& job) {
  for (const char* sql :
       {"DELETE FROM labels WHERE job=?", "DELETE FROM webhooks WHERE job=?",
        "DELETE FROM checkpoints WHERE job=?", "DELETE FROM artifacts WHERE job=?",
        "DELETE FROM attempts WHERE job=?", "DELETE FROM origins WHERE job=?",
        "DELETE FROM jobs WHERE id=? AND state IN (8, 9, 10)"})
    RETURN_IF_ERROR(database.Run(sql, {job}));
  return absl::OkStatus();
}

}  // namespace

absl::Status InsertJob(Database& database, NewJob& job) {
  job.known.reset();  // What a batch that did not land has found.
  if (job.request) {
    RETURN_IF_ERROR(database.Query(
        "SELECT request_id, body_sha256, id, request_expires_us FROM jobs "
        "WHERE request_id=? AND request_expires_us>=?",
        {job.request->request_id, job.event.wall_us}, [&](const Row& row) {
          job.known = RequestRecord{row.Text(0), row.Text(1), row.Text(2), row.Int(3)};
          return absl::OkStatus();
        }));
    if (job.known) return absl::OkStatus();
  }
  if (!job.refusal.ok()) return absl::OkStatus();
  RETURN_IF_ERROR(AddJob(database, job.record, job.request.value_or(RequestRecord())));
  return WriteEvent(database, job.event);
}

absl::Status WriteChange(Database& database, const Change& change) {
  if (!change.deleted.empty()) RETURN_IF_ERROR(DeleteJob(database, change.deleted));
  if (change.job != nullptr) RETURN_IF_ERROR(WriteJob(database, change));
  if (change.labels) RETURN_IF_ERROR(WriteLabels(database, change.job->job));
  if (change.plans) RETURN_IF_ERROR(WritePlans(database, *change.plans));
  if (change.attempt != nullptr) RETURN_IF_ERROR(WriteAttempt(database, *change.attempt));
  for (const EventRecord& event : change.events) {
    RETURN_IF_ERROR(WriteEvent(database, event));
    if (change.job != nullptr) RETURN_IF_ERROR(ExpectCall(database, change.job->job, event));
  }
  RETURN_IF_ERROR(WriteReservation(database, change));
  for (const CheckpointRecord& checkpoint : change.checkpoints)
    RETURN_IF_ERROR(WriteCheckpoint(database, checkpoint));
  if (change.token) RETURN_IF_ERROR(WriteToken(database, *change.token));
  if (change.drain) RETURN_IF_ERROR(WriteDrain(database, *change.drain));
  if (change.webhook) RETURN_IF_ERROR(WriteWebhook(database, *change.webhook));
  if (!change.artifact) return absl::OkStatus();
  return database.Run("INSERT INTO artifacts VALUES(?,?,?,?,?)",
                      {change.artifact->job, int64_t{change.artifact->epoch}, change.artifact->dir,
                       change.artifact->bytes, change.artifact->sha256});
}

absl::StatusOr<JobRecord> ReadJob(const Row& row) {
  JobRecord record;
  const std::string spec = row.Bytes(2);
  if (!record.job.ParseFromString(row.Bytes(1)))
    return absl::DataLossError(
        absl::StrCat("the store's row of job ", row.Text(0), " does not parse"));
  if (Sha256Hex(spec) != row.Text(3) || !record.job.mutable_spec()->ParseFromString(spec))
    return absl::DataLossError(absl::StrCat("the spec in the store's row of job ", row.Text(0),
                                            " is not the one that was accepted: it is damaged"));
  record.order = row.Int(4);
  record.infra_failures = static_cast<int>(row.Int(5));
  record.oom_failures = static_cast<int>(row.Int(6));
  record.not_before_us = row.Int(7);
  record.last_resume_step = row.Int(8);
  record.train_data = row.Text(9);
  record.eval_data = row.Text(10);
  record.output_dir = row.Text(11);
  return record;
}

absl::StatusOr<StoredState> LoadState(Database& database) {
  StoredState state;
  RETURN_IF_ERROR(LoadJobs(database, state));
  RETURN_IF_ERROR(LoadAttempts(database, state));
  RETURN_IF_ERROR(LoadPlans(database, state));
  RETURN_IF_ERROR(LoadReservations(database, state));
  RETURN_IF_ERROR(LoadDrains(database, state));
  return state;
}

absl::StatusOr<std::vector<WebhookRecord>> DueWebhooks(Database& database, int64_t now_us,
                                                       absl::Duration longest_wait) {
  std::vector<WebhookRecord> due;
  RETURN_IF_ERROR(database.Query(  // UNION ALL: an OR would walk through all that wait.
      "SELECT job, due_us, tries FROM webhooks WHERE due_us<=?1 UNION ALL "
      "SELECT job, due_us, tries FROM webhooks WHERE due_us>?2 ORDER BY due_us LIMIT 16",
      {now_us, now_us + absl::ToInt64Microseconds(longest_wait)}, [&](const Row& row) {
        due.push_back({.job = row.Text(0), .due_us = row.Int(1), .tries = row.Int(2)});
        return absl::OkStatus();
      }));
  return due;
}

}  // namespace snug::server
