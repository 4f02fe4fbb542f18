// Lists of jobs as the API gives them: a request as a query, a page as a response.
#ifndef SERVER_API_JOB_PAGES_H_
#define SERVER_API_JOB_PAGES_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/api/page_token.h"
#include "server/job/job_index.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

// INVALID_ARGUMENT for what is no list, or a token of another one.
absl::StatusOr<JobQuery> QueryOf(const v1::ListJobsRequest& request, const PageTokens& tokens);

// Of the jobs that he may see, the fields that were asked for; at most 3 MiB of them, the rest is
// for the next page.
absl::StatusOr<v1::ListJobsResponse> ListPage(const v1::ListJobsRequest& request,
                                              const Principal& who, const PageTokens& tokens,
                                              const JobIndex& index);

}  // namespace snug::server

#endif  // SERVER_API_JOB_PAGES_H_
