#include "server/job/store_rows.h"

#include <utility>

#include "proto/snug/status_macros.h"
#include "server/data/sha256.h"
#include "snug/v1/job.pb.h"

namespace snug::server {
namespace {

// jobs.view is the Job as shown, less its spec, which has a column of its own: the bytes that were
// accepted are never rewritten.
constexpr const char* kSchema = R"sql(
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE jobs(
  id TEXT PRIMARY KEY, tenant TEXT NOT NULL, state INTEGER NOT NULL,
  arrival INTEGER NOT NULL UNIQUE,
  spec BLOB NOT NULL, spec_sha256 TEXT NOT NULL, view BLOB NOT NULL,
  infra_failures INTEGER NOT NULL, oom_failures INTEGER NOT NULL, not_before_us INTEGER NOT NULL,
  last_resume_step INTEGER NOT NULL, train_data TEXT NOT NULL, eval_data TEXT NOT NULL,
  output_dir TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TRIGGER terminal_is_final BEFORE UPDATE OF state ON jobs
  WHEN OLD.state IN (8, 9, 10) AND NEW.state <> OLD.state
  BEGIN SELECT RAISE(ABORT, 'a terminal job cannot change its state'); END;
CREATE TABLE attempts(
  job TEXT NOT NULL REFERENCES jobs(id), epoch INTEGER NOT NULL, state INTEGER NOT NULL,
  nonce TEXT NOT NULL, device TEXT NOT NULL, boot_id TEXT NOT NULL, shim_pid INTEGER NOT NULL,
  plan BLOB NOT NULL, cap_bytes INTEGER NOT NULL, resume_from TEXT NOT NULL,
  resume_step INTEGER NOT NULL, created_us INTEGER NOT NULL, exit TEXT NOT NULL,
  PRIMARY KEY(job, epoch)) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX one_open_attempt ON attempts(job) WHERE state < 6;
CREATE TABLE reservations(
  device TEXT NOT NULL, job TEXT NOT NULL, epoch INTEGER NOT NULL, bytes INTEGER NOT NULL,
  PRIMARY KEY(job, epoch)) STRICT, WITHOUT ROWID;
CREATE TABLE requests(
  tenant TEXT NOT NULL, request_id TEXT NOT NULL, body_sha256 TEXT NOT NULL,
  job TEXT NOT NULL REFERENCES jobs(id), expires_us INTEGER NOT NULL,
  PRIMARY KEY(tenant, request_id)) STRICT, WITHOUT ROWID;
CREATE TABLE events(
  seq INTEGER PRIMARY KEY, job TEXT NOT NULL, old INTEGER NOT NULL, new INTEGER NOT NULL,
  reason TEXT NOT NULL, wall_us INTEGER NOT NULL) STRICT;
CREATE TABLE checkpoints(
  job TEXT NOT NULL REFERENCES jobs(id), step INTEGER NOT NULL, epoch INTEGER NOT NULL,
  manifest_sha256 TEXT NOT NULL, dir TEXT NOT NULL, bytes INTEGER NOT NULL, state INTEGER NOT NULL,
  PRIMARY KEY(job, step, epoch)) STRICT, WITHOUT ROWID;
CREATE TABLE artifacts(
  job TEXT PRIMARY KEY REFERENCES jobs(id), epoch INTEGER NOT NULL, dir TEXT NOT NULL,
  bytes INTEGER NOT NULL, sha256 TEXT NOT NULL) STRICT, WITHOUT ROWID;
)sql";

constexpr const char* kTenant = "default";

absl::Status WriteJob(Database& database, const JobRecord& record) {
  v1::Job view = record.job;
  const std::string spec = view.spec().SerializeAsString();
  view.clear_spec();
  // Not INSERT OR REPLACE: that deletes the old row first, past the trigger that guards terminal
  // states.
  return database.Run(
      "INSERT INTO jobs VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14) "
      "ON CONFLICT(id) DO UPDATE SET state=?3, spec=?5, spec_sha256=?6, view=?7, "
      "infra_failures=?8, oom_failures=?9, "
      "not_before_us=?10, last_resume_step=?11, train_data=?12, eval_data=?13, output_dir=?14",
      {record.id(), kTenant, int64_t{record.state()}, record.order, Blob{spec}, Sha256Hex(spec),
       Blob{view.SerializeAsString()}, int64_t{record.infra_failures}, int64_t{record.oom_failures},
       record.not_before_us, record.last_resume_step, record.train_data, record.eval_data,
       record.output_dir});
}

absl::Status WriteAttempt(Database& database, const AttemptRecord& attempt) {
  return database.Run(
      "INSERT INTO attempts VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13) "
      "ON CONFLICT(job, epoch) DO UPDATE SET state=?3, shim_pid=?7, exit=?13",
      {attempt.job, int64_t{attempt.epoch}, static_cast<int64_t>(attempt.state), attempt.nonce,
       attempt.device, attempt.boot_id, attempt.shim_pid, Blob{attempt.plan.SerializeAsString()},
       attempt.cap_bytes, attempt.resume_from, attempt.resume_step, attempt.created_us,
       attempt.exit});
}

absl::Status WriteEvent(Database& database, const EventRecord& event) {
  return database.Run(
      "INSERT INTO events SELECT coalesce(max(seq), 0) + 1, ?1, ?2, ?3, ?4, ?5 FROM events",
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
        database.Run("INSERT INTO reservations VALUES(?,?,?,?)",
                     {reserve.device, reserve.job, int64_t{reserve.epoch}, reserve.bytes}));
  }
  if (!change.release) return absl::OkStatus();
  return database.Run("DELETE FROM reservations WHERE job=? AND epoch=?",
                      {change.attempt->job, int64_t{change.attempt->epoch}});
}

absl::Status LoadJobs(Database& database, StoredState& state) {
  return database.Query(
      "SELECT view, spec, arrival, infra_failures, oom_failures, not_before_us, last_resume_step, "
      "train_data, eval_data, output_dir FROM jobs ORDER BY arrival",
      [&](const Row& row) {
        JobRecord record;
        if (!record.job.ParseFromString(row.Bytes(0)) ||
            !record.job.mutable_spec()->ParseFromString(row.Bytes(1)))
          return absl::DataLossError("a row of the store's table jobs does not parse");
        record.order = row.Int(2);
        record.infra_failures = static_cast<int>(row.Int(3));
        record.oom_failures = static_cast<int>(row.Int(4));
        record.not_before_us = row.Int(5);
        record.last_resume_step = row.Int(6);
        record.train_data = row.Text(7);
        record.eval_data = row.Text(8);
        record.output_dir = row.Text(9);
        state.jobs.push_back(std::move(record));
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

absl::Status LoadSideTables(Database& database, StoredState& state) {
  RETURN_IF_ERROR(
      database.Query("SELECT device, job, epoch, bytes FROM reservations", [&](const Row& row) {
        state.reservations.push_back(
            {row.Text(0), row.Text(1), static_cast<int>(row.Int(2)), row.Int(3)});
        return absl::OkStatus();
      }));
  RETURN_IF_ERROR(database.Query(
      "SELECT request_id, body_sha256, job, expires_us FROM requests", [&](const Row& row) {
        state.requests.push_back({row.Text(0), row.Text(1), row.Text(2), row.Int(3)});
        return absl::OkStatus();
      }));
  return database.Query(
      "SELECT job, step, epoch, manifest_sha256, dir, bytes, state FROM checkpoints "
      "ORDER BY job, step, epoch",
      [&](const Row& row) {
        state.checkpoints.push_back({row.Text(0), row.Int(1), static_cast<int>(row.Int(2)),
                                     row.Text(3), row.Text(4), row.Int(5),
                                     static_cast<CheckpointRecord::State>(row.Int(6))});
        return absl::OkStatus();
      });
}

}  // namespace

absl::Status CreateTables(Database& database) { return database.Execute(kSchema); }

absl::Status WriteChange(Database& database, const Change& change) {
  if (change.job != nullptr) RETURN_IF_ERROR(WriteJob(database, *change.job));
  if (change.attempt != nullptr) RETURN_IF_ERROR(WriteAttempt(database, *change.attempt));
  for (const EventRecord& event : change.events) RETURN_IF_ERROR(WriteEvent(database, event));
  RETURN_IF_ERROR(WriteReservation(database, change));
  if (change.request) {
    RETURN_IF_ERROR(database.Run("INSERT OR REPLACE INTO requests VALUES(?,?,?,?,?)",
                                 {kTenant, change.request->request_id, change.request->body_sha256,
                                  change.request->job, change.request->expires_us}));
  }
  for (const CheckpointRecord& checkpoint : change.checkpoints)
    RETURN_IF_ERROR(WriteCheckpoint(database, checkpoint));
  if (!change.artifact) return absl::OkStatus();
  return database.Run("INSERT INTO artifacts VALUES(?,?,?,?,?)",
                      {change.artifact->job, int64_t{change.artifact->epoch}, change.artifact->dir,
                       change.artifact->bytes, change.artifact->sha256});
}

absl::StatusOr<StoredState> LoadState(Database& database) {
  StoredState state;
  RETURN_IF_ERROR(LoadJobs(database, state));
  RETURN_IF_ERROR(LoadAttempts(database, state));
  RETURN_IF_ERROR(LoadSideTables(database, state));
  return state;
}

}  // namespace snug::server
