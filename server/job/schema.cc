#include "server/job/schema.h"

#include <fcntl.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"
#include "proto/snug/status_macros.h"
#include "server/data/sha256.h"
#include "server/failpoint.h"
#include "server/job/job_ref.h"
#include "server/job/log.h"
#include "server/job/names.h"
#include "server/job/principal.h"
#include "server/job/random_id.h"
#include "snug/v1/job.pb.h"

namespace snug::server {
namespace {

// jobs.view is the Job as shown, less its spec, which has a column of its own: its bytes are those
// that were accepted, and once more when its files have been read, with their defaults filled in.
constexpr const char* kVersion1 = R"sql(
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

// What lists filter by has columns. Plans outlive the daemon, so that a restart places jobs without
// planning them again; jobs of equal plans share a row.
constexpr const char* kVersion2 = R"sql(
ALTER TABLE jobs ADD COLUMN display_name TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN created_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN ended_us INTEGER NOT NULL DEFAULT 0;
CREATE INDEX jobs_by_state ON jobs(state, arrival);
CREATE INDEX jobs_by_name ON jobs(display_name, arrival);
CREATE INDEX requests_by_job ON requests(job);
CREATE TABLE labels(
  job TEXT NOT NULL REFERENCES jobs(id), key TEXT NOT NULL, value TEXT NOT NULL,
  PRIMARY KEY(job, key)) STRICT, WITHOUT ROWID;
CREATE INDEX labels_by_value ON labels(key, value);
ALTER TABLE jobs ADD COLUMN plans TEXT NOT NULL DEFAULT '';
CREATE TABLE plans(sha256 TEXT PRIMARY KEY, made_by TEXT NOT NULL, plans BLOB NOT NULL)
  STRICT, WITHOUT ROWID;
CREATE TABLE counts(jobs INTEGER NOT NULL) STRICT;
INSERT INTO counts SELECT count(*) FROM jobs;
CREATE TRIGGER job_arrives AFTER INSERT ON jobs BEGIN UPDATE counts SET jobs = jobs + 1; END;
CREATE TRIGGER job_goes AFTER DELETE ON jobs BEGIN UPDATE counts SET jobs = jobs - 1; END;
)sql";

constexpr const char* kVersion3 = R"sql(
CREATE TABLE tokens(
  id TEXT PRIMARY KEY, tenant TEXT NOT NULL, role INTEGER NOT NULL, sha256 TEXT NOT NULL,
  created_us INTEGER NOT NULL, expires_us INTEGER NOT NULL, revoked_us INTEGER NOT NULL)
  STRICT, WITHOUT ROWID;
)sql";

// Calls that ended jobs' webhooks wait for.
constexpr const char* kVersion4 = R"sql(
CREATE TABLE webhooks(
  job TEXT PRIMARY KEY REFERENCES jobs(id), due_us INTEGER NOT NULL, tries INTEGER NOT NULL)
  STRICT, WITHOUT ROWID;
CREATE INDEX webhooks_by_due ON webhooks(due_us);
)sql";

// Jobs lie by arrival: those of a burst are written side by side, not each to a page of its own.
constexpr const char* kVersion5 = R"sql(
CREATE TABLE jobs_by_arrival(
  arrival INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL,
  state INTEGER NOT NULL, spec BLOB NOT NULL, spec_sha256 TEXT NOT NULL, view BLOB NOT NULL,
  infra_failures INTEGER NOT NULL, oom_failures INTEGER NOT NULL, not_before_us INTEGER NOT NULL,
  last_resume_step INTEGER NOT NULL, train_data TEXT NOT NULL, eval_data TEXT NOT NULL,
  output_dir TEXT NOT NULL, display_name TEXT NOT NULL DEFAULT '', owner TEXT NOT NULL DEFAULT '',
  created_us INTEGER NOT NULL DEFAULT 0, ended_us INTEGER NOT NULL DEFAULT 0,
  plans TEXT NOT NULL DEFAULT '') STRICT;
INSERT INTO jobs_by_arrival SELECT arrival, id, tenant, state, spec, spec_sha256, view,
  infra_failures, oom_failures, not_before_us, last_resume_step, train_data, eval_data, output_dir,
  display_name, owner, created_us, ended_us, plans FROM jobs ORDER BY arrival;
DROP TABLE jobs;
ALTER TABLE jobs_by_arrival RENAME TO jobs;
CREATE INDEX jobs_by_state ON jobs(state);
CREATE INDEX jobs_by_name ON jobs(display_name);
CREATE TRIGGER terminal_is_final BEFORE UPDATE OF state ON jobs
  WHEN OLD.state IN (8, 9, 10) AND NEW.state <> OLD.state
  BEGIN SELECT RAISE(ABORT, 'a terminal job cannot change its state'); END;
CREATE TRIGGER job_arrives AFTER INSERT ON jobs BEGIN UPDATE counts SET jobs = jobs + 1; END;
CREATE TRIGGER job_goes AFTER DELETE ON jobs BEGIN UPDATE counts SET jobs = jobs - 1; END;
)sql";

// Which jobs begin with what another one made; that one is called by its name.
constexpr const char* kVersion7 = R"sql(
CREATE TABLE origins(
  origin TEXT NOT NULL, job TEXT NOT NULL REFERENCES jobs(id), PRIMARY KEY(origin, job))
  STRICT, WITHOUT ROWID;
CREATE INDEX origins_by_job ON origins(job);
)sql";

// Somebody's own jobs lie side by side in the order of their keys: a search among them does not
// walk through all others'.
constexpr const char* kVersion8 = "CREATE INDEX jobs_by_owner ON jobs(owner, id)";

// The request that made a job is in the job's own row, which is written anyhow. A table of them and
// its two indexes, all by numbers at random, were half of what a burst of submits wrote. Requests
// that have expired are not taken along.
constexpr const char* kVersion9 = R"sql(
ALTER TABLE jobs ADD COLUMN request_id TEXT;
ALTER TABLE jobs ADD COLUMN body_sha256 TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN request_expires_us INTEGER NOT NULL DEFAULT 0;
UPDATE jobs SET request_id=r.request_id, body_sha256=r.body_sha256, request_expires_us=r.expires_us
  FROM requests r WHERE r.job=jobs.id AND r.expires_us>=unixepoch()*1000000;
DROP TABLE requests;
CREATE INDEX jobs_by_request ON jobs(request_id) WHERE request_id IS NOT NULL;
)sql";

absl::Status ToVersion1(Database& database) {
  RETURN_IF_ERROR(database.Execute(kVersion1));
  RETURN_IF_ERROR(database.Run("INSERT INTO meta VALUES('instance_uuid', ?)", {RandomUuid()}));
  RETURN_IF_ERROR(database.Execute("INSERT INTO meta VALUES('boot_epoch', '0')"));
  return database.Execute(absl::StrCat("PRAGMA application_id=", kApplicationId));
}

struct OldJob {
  std::string id;
  v1::Job view;
};

absl::Status ToVersion2(Database& database) {
  using google::protobuf::util::TimeUtil;
  RETURN_IF_ERROR(database.Execute(kVersion2));
  std::vector<OldJob> jobs;
  RETURN_IF_ERROR(database.Query("SELECT id, view, spec FROM jobs", [&](const Row& row) {
    OldJob& job = jobs.emplace_back(OldJob{.id = row.Text(0)});
    v1::JobSpec spec;
    if (!job.view.ParseFromString(row.Bytes(1)) || !spec.ParseFromString(row.Bytes(2)))
      return absl::DataLossError(absl::StrCat("the row of job ", job.id, " does not parse"));
    job.view.set_priority(spec.priority());
    return absl::OkStatus();
  }));
  for (const OldJob& job : jobs)
    RETURN_IF_ERROR(database.Run(
        "UPDATE jobs SET display_name=?2, created_us=?3, ended_us=?4, view=?5, owner=?6 WHERE "
        "id=?1",
        {job.id, job.view.display_name(), TimeUtil::TimestampToMicroseconds(job.view.create_time()),
         TimeUtil::TimestampToMicroseconds(job.view.end_time()), Blob{job.view.SerializeAsString()},
         job.view.owner()}));
  return absl::OkStatus();
}

// Of version 5: a job, and how it names others.
struct Refs {
  std::string key;
  v1::Job view;
  v1::JobSpec spec;
};

// What `text` names is the job of that id, whoever's it is: by its name, where it is another
// tenant's than the one that names it.
absl::Status NameForeign(Database& database, const std::string& tenant, std::string& text) {
  const std::optional<JobRef> ref = ParseJobRef(text);
  if (!ref || IsName(ref->job)) return absl::OkStatus();
  return database.Query("SELECT tenant FROM jobs WHERE id=? AND tenant<>?", {ref->job, tenant},
                        [&](const Row& row) {
                          text = ForAll(text, row.Text(0));
                          return absl::OkStatus();
                        });
}

// From now on an id is that of a job of the tenant whose job names it.
absl::Status ToVersion6(Database& database) {
  std::vector<Refs> jobs;
  const auto read = [&](const Row& row) {
    Refs job{.key = row.Text(0), .view = {}, .spec = {}};
    // A damaged row is found damaged when it is read, as before.
    if (Sha256Hex(row.Bytes(2)) != row.Text(3) || !job.view.ParseFromString(row.Bytes(1)) ||
        !job.spec.ParseFromString(row.Bytes(2)))
      return absl::OkStatus();
    if (job.view.name().empty() || !job.view.parent_job().empty() || NamesJob(job.spec.model()) ||
        NamesJob(job.spec.lora().init_adapter()))
      jobs.push_back(std::move(job));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(database.Query("SELECT id, view, spec, spec_sha256 FROM jobs", read));
  for (Refs& job : jobs) {
    const std::string tenant = TenantOf(job.view.owner());
    job.view.set_name(JobName(job.view));
    RETURN_IF_ERROR(NameForeign(database, tenant, *job.view.mutable_parent_job()));
    RETURN_IF_ERROR(NameForeign(database, tenant, *job.spec.mutable_model()));
    if (job.spec.has_lora())
      RETURN_IF_ERROR(
          NameForeign(database, tenant, *job.spec.mutable_lora()->mutable_init_adapter()));
    const std::string spec = job.spec.SerializeAsString();
    RETURN_IF_ERROR(
        database.Run("UPDATE jobs SET view=?2, spec=?3, spec_sha256=?4 WHERE id=?1",
                     {job.key, Blob{job.view.SerializeAsString()}, Blob{spec}, Sha256Hex(spec)}));
  }
  return absl::OkStatus();
}

absl::Status ToVersion7(Database& database) {
  RETURN_IF_ERROR(database.Execute(kVersion7));
  std::vector<std::pair<std::string, std::string>> origins;
  const auto read = [&](const Row& row) {
    v1::Job job;
    // A damaged row is found damaged when it is read, as before.
    if (!job.ParseFromString(row.Bytes(1)) || !job.mutable_spec()->ParseFromString(row.Bytes(2)))
      return absl::OkStatus();
    for (std::string& name : NamesOfOrigins(job))
      origins.emplace_back(std::move(name), row.Text(0));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(database.Query("SELECT id, view, spec FROM jobs", read));
  for (const auto& [origin, job] : origins)
    RETURN_IF_ERROR(database.Run("INSERT OR IGNORE INTO origins VALUES(?,?)", {origin, job}));
  return absl::OkStatus();
}

absl::Status ToVersion3(Database& database) { return database.Execute(kVersion3); }
absl::Status ToVersion4(Database& database) { return database.Execute(kVersion4); }
absl::Status ToVersion5(Database& database) { return database.Execute(kVersion5); }
absl::Status ToVersion8(Database& database) { return database.Execute(kVersion8); }
absl::Status ToVersion9(Database& database) { return database.Execute(kVersion9); }

using Step = absl::Status (*)(Database&);
// To version index + 1.
constexpr Step kSteps[kSchemaVersion] = {ToVersion1, ToVersion2, ToVersion3, ToVersion4, ToVersion5,
                                         ToVersion6, ToVersion7, ToVersion8, ToVersion9};

}  // namespace

absl::Status CopyDatabase(Database& database, const std::string& path) {
  RETURN_IF_ERROR(database.Run("VACUUM INTO ?", {path}));
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  const int failed = FAILS_AT("copy.sync") ? (errno = EIO) : fsync(fd);
  const int error = errno;
  close(fd);
  return failed ? absl::ErrnoToStatus(error, absl::StrCat("fsync of ", path)) : absl::OkStatus();
}

absl::Status Migrate(Database& database, int64_t from, const std::string& copy) {
  if (from == kSchemaVersion) return absl::OkStatus();
  if (from > 0 && !copy.empty()) {
    // Left by a start that was killed: not known to be whole.
    if (unlink(copy.c_str()) != 0 && errno != ENOENT)
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot replace ", copy));
    RETURN_IF_ERROR(CopyDatabase(database, copy));
    spdlog::info("the store goes from schema {} to {}; as it was it is in {}", from, kSchemaVersion,
                 copy);
  }
  // A table that others refer to may be made anew: references are checked at the end of each step.
  RETURN_IF_ERROR(database.Execute("PRAGMA foreign_keys=OFF"));
  for (int64_t version = from; version < kSchemaVersion; ++version)
    RETURN_IF_ERROR(database.Transaction([&] {
      RETURN_IF_ERROR(kSteps[version](database));
      RETURN_IF_ERROR(database.Query("PRAGMA foreign_key_check", [](const Row& row) {
        return absl::DataLossError(absl::StrCat("a row of the store's table ", row.Text(0),
                                                " names a job that there is not"));
      }));
      return database.Execute(absl::StrCat("PRAGMA user_version=", version + 1));
    }));
  return database.Execute("PRAGMA foreign_keys=ON");
}

}  // namespace snug::server
