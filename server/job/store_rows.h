// Records <-> rows of the store's tables. All SQL of jobs that have not ended
// is here; the schema's is in schema.cc, that of reads about any job in store_reads.cc.
#ifndef SERVER_JOB_STORE_ROWS_H_
#define SERVER_JOB_STORE_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/job/database.h"
#include "server/job/records.h"

namespace snug::server {

// These are called inside one transaction.
// ALREADY_EXISTS when the id is taken. Sets `known` instead of writing where the request is known.
absl::Status InsertJob(Database& database, NewJob& job);
absl::Status WriteChange(Database& database, const Change& change);

// One row of kJobColumns. DATA_LOSS when it does not parse or its spec is not the one that was
// accepted.
inline constexpr const char* kJobColumns =
    "id, view, spec, spec_sha256, arrival, infra_failures, oom_failures, not_before_us, "
    "last_resume_step, train_data, eval_data, output_dir";
absl::StatusOr<JobRecord> ReadJob(const Row& row);

absl::StatusOr<StoredState> LoadState(Database& database);

// Calls whose time has come, a few of them, longest due first. A call that would wait longer than
// any does counts as one: the clock has been set back since.
absl::StatusOr<std::vector<WebhookRecord>> DueWebhooks(Database& database, int64_t now_us,
                                                       absl::Duration longest_wait);

}  // namespace snug::server

#endif  // SERVER_JOB_STORE_ROWS_H_
