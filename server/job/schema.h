// The versions of the store's tables, and the ways from each to the next.
//
// Forward only, each step one transaction. An empty database takes all steps, so that the way of an
// old one is the way of every one. Before an old database takes its first step it is copied beside
// itself.
#ifndef SERVER_JOB_SCHEMA_H_
#define SERVER_JOB_SCHEMA_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "server/job/database.h"

namespace snug::server {

inline constexpr int64_t kSchemaVersion = 9;
inline constexpr int64_t kApplicationId = 0x534E5547;  // "SNUG"

// `copy`: where the database goes as it is before the first step; empty: nowhere.
absl::Status Migrate(Database& database, int64_t from, const std::string& copy);

// The database as it is now, into a new file that is on the disk when this returns OK.
absl::Status CopyDatabase(Database& database, const std::string& path);

}  // namespace snug::server

#endif  // SERVER_JOB_SCHEMA_H_
