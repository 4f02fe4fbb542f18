// Records <-> rows of the store's tables. All SQL but the schema's is here.
#ifndef SERVER_JOB_STORE_ROWS_H_
#define SERVER_JOB_STORE_ROWS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/job/database.h"
#include "server/job/records.h"

namespace snug::server {

absl::Status CreateTables(Database& database);

// To be called inside one transaction.
absl::Status WriteChange(Database& database, const Change& change);

absl::StatusOr<StoredState> LoadState(Database& database);

}  // namespace snug::server

#endif  // SERVER_JOB_STORE_ROWS_H_
