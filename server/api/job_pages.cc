#include "server/api/job_pages.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"
#include "proto/snug/status_macros.h"
#include "server/api/masks.h"
#include "server/api/pages.h"
#include "server/job/errors.h"

namespace snug::server {
namespace {

using google::protobuf::FieldMask;
using google::protobuf::util::TimeUtil;

constexpr const char* kNewestFirst = "create_time desc";
constexpr const char* kOldestFirst = "create_time";

absl::Status BadField(const std::string& field, const std::string& what) {
  return InvalidRequest({{field, what, "BAD_FIELD"}});
}

// Here no mask is all but what is large.
v1::Job Shown(const v1::Job& job, const FieldMask& mask) {
  v1::Job shown = job;
  if (!mask.paths().empty()) return Trimmed(std::move(shown), mask);
  shown.clear_spec();
  shown.clear_plan();
  shown.clear_plan_changes();
  shown.clear_dataset();
  shown.clear_output();
  return shown;
}

}  // namespace

absl::StatusOr<JobQuery> QueryOf(const v1::ListJobsRequest& request, const PageTokens& tokens) {
  RETURN_IF_ERROR(CheckReadMask(request.read_mask(), *v1::Job::descriptor()));
  const std::string& order = request.order_by();
  if (!order.empty() && order != kNewestFirst && order != kOldestFirst)
    return BadField("order_by", absl::StrCat("\"", order, "\" is neither \"", kNewestFirst,
                                             "\" nor \"", kOldestFirst, "\""));
  JobQuery query{.display_name = request.display_name(),
                 .labels = {request.labels().begin(), request.labels().end()},
                 .newest_first = order != kOldestFirst};
  for (const int state : request.states()) query.states.insert(static_cast<JobState>(state));
  if (query.states.empty() && !request.all())
    for (int state = v1::Job::STATE_PREPARING; state < v1::Job::STATE_SUCCEEDED; ++state)
      query.states.insert(static_cast<JobState>(state));
  if (request.has_created_from())
    query.created_from_us = TimeUtil::TimestampToMicroseconds(request.created_from());
  if (request.has_created_until())
    query.created_until_us = TimeUtil::TimestampToMicroseconds(request.created_until());
  ASSIGN_OR_RETURN(query.limit, PageSizeOf(request.page_size()));
  query.whole = !request.read_mask().paths().empty() && Wants(request.read_mask(), "spec");
  ASSIGN_OR_RETURN(const std::string after, tokens.Read(request.page_token(), FilterOf(request)));
  if (!after.empty() && !absl::SimpleAtoi(after, &query.after))
    return absl::InternalError("a page token of this daemon's own has no place");
  return query;
}

absl::StatusOr<v1::ListJobsResponse> ListPage(const v1::ListJobsRequest& request,
                                              const Principal& who, const PageTokens& tokens,
                                              const JobIndex& index) {
  ASSIGN_OR_RETURN(JobQuery query, QueryOf(request, tokens));
  if (!who.SeesAll()) query.owner = who.name();
  ASSIGN_OR_RETURN(const JobPage page, index.List(query));
  v1::ListJobsResponse response;
  int64_t next = page.next, bytes = 0, last = 0;
  for (const ListedJob& listed : page.jobs) {
    v1::Job shown = Shown(*listed.job, request.read_mask());
    bytes += static_cast<int64_t>(shown.ByteSizeLong());
    if (bytes > kMaxPageBytes && response.jobs_size() > 0) {
      next = last;
      break;
    }
    *response.add_jobs() = std::move(shown);
    last = listed.order;
  }
  if (next != 0) response.set_next_page_token(tokens.Make(absl::StrCat(next), FilterOf(request)));
  return response;
}

}  // namespace snug::server
