// Reads about any job, ended ones as well, for those who ask one question at a time. Each runs on
// the store's thread, so each is bounded.
#ifndef SERVER_JOB_STORE_READS_H_
#define SERVER_JOB_STORE_READS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/job/database.h"
#include "server/job/job_query.h"
#include "server/job/principal.h"
#include "server/job/records.h"

namespace snug::server {

absl::StatusOr<JobRecord> SelectJob(Database& database, const std::string& key);
// The one that `who` means by the text; see JobSearch.
absl::StatusOr<JobRecord> SearchJob(Database& database, absl::string_view text,
                                    const Principal& who);
absl::StatusOr<JobPage> SelectPage(Database& database, const JobQuery& query);

}  // namespace snug::server

#endif  // SERVER_JOB_STORE_READS_H_
