#include "server/api/job_pages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/field_mask_util.h"
#include "google/protobuf/util/time_util.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"

namespace snug::server {
namespace {

using google::protobuf::FieldMask;
using google::protobuf::util::FieldMaskUtil;
using google::protobuf::util::TimeUtil;

constexpr int kDefaultPage = 50;
constexpr int kMaxPage = 1000;
constexpr int64_t kMaxPageBytes = 3 << 20;  // Clients take 4 MiB by default.
constexpr const char* kNewestFirst = "create_time desc";
constexpr const char* kOldestFirst = "create_time";

absl::Status BadField(const std::string& field, const std::string& what) {
  return InvalidRequest({{field, what, "BAD_FIELD"}});
}

// What the page's token is bound to: all but which page it is.
std::string FilterText(v1::ListJobsRequest request) {
  request.clear_page_token();
  request.clear_page_size();
  request.clear_read_mask();
  return request.ShortDebugString();
}

bool WantsAll(const FieldMask& mask) {
  return std::find(mask.paths().begin(), mask.paths().end(), "*") != mask.paths().end();
}

absl::Status CheckMask(const FieldMask& mask) {
  if (WantsAll(mask) || FieldMaskUtil::IsValidFieldMask<v1::Job>(mask)) return absl::OkStatus();
  return BadField("read_mask",
                  absl::StrCat("\"", FieldMaskUtil::ToString(mask), "\" names no fields of a job"));
}

bool WantsSpec(const FieldMask& mask) {
  return WantsAll(mask) || FieldMaskUtil::IsPathInFieldMask("spec", mask) ||
         std::any_of(mask.paths().begin(), mask.paths().end(),
                     [](const std::string& path) { return path.rfind("spec.", 0) == 0; });
}

v1::Job Shown(const v1::Job& job, const FieldMask& mask) {
  v1::Job shown = job;
  if (WantsAll(mask)) return shown;
  if (!mask.paths().empty()) {
    FieldMaskUtil::TrimMessage(mask, &shown);
    return shown;
  }
  shown.clear_spec();
  shown.clear_plan();
  shown.clear_plan_changes();
  shown.clear_dataset();
  shown.clear_output();
  return shown;
}

}  // namespace

absl::StatusOr<JobQuery> QueryOf(const v1::ListJobsRequest& request, const PageTokens& tokens) {
  if (request.page_size() < 0) return BadField("page_size", "cannot be negative");
  RETURN_IF_ERROR(CheckMask(request.read_mask()));
  const std::string& order = request.order_by();
  if (!order.empty() && order != kNewestFirst && order != kOldestFirst)
    return BadField("order_by", absl::StrCat("\"", order, "\" is neither \"", kNewestFirst,
                                             "\" nor \"", kOldestFirst, "\""));
  JobQuery query{.display_name = request.display_name(),
                 .labels = {request.labels().begin(), request.labels().end()},
                 .newest_first = order != kOldestFirst};
  for (const int state : request.states()) query.states.insert(static_cast<JobState>(state));
  if (query.states.empty() && !request.all())
    for (int state = v1::Job::PREPARING; state < v1::Job::SUCCEEDED; ++state)
      query.states.insert(static_cast<JobState>(state));
  if (request.has_created_from())
    query.created_from_us = TimeUtil::TimestampToMicroseconds(request.created_from());
  if (request.has_created_until())
    query.created_until_us = TimeUtil::TimestampToMicroseconds(request.created_until());
  const int wanted = request.page_size() == 0 ? kDefaultPage : request.page_size();
  query.limit = static_cast<size_t>(std::min(wanted, kMaxPage));
  query.whole = WantsSpec(request.read_mask());
  ASSIGN_OR_RETURN(query.after, tokens.Read(request.page_token(), FilterText(request)));
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
  if (next != 0) response.set_next_page_token(tokens.Make(next, FilterText(request)));
  return response;
}

}  // namespace snug::server
