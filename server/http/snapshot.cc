#include "server/http/snapshot.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/snug/json.h"
#include "proto/snug/status_macros.h"
#include "server/http/status_page.h"
#include "server/job/job_key.h"

namespace snug::server {
namespace {

std::string Event(absl::string_view name, absl::string_view data) {
  return absl::StrCat("event: ", name, "\ndata: ", data, "\n\n");
}

}  // namespace

std::string JsonOf(const google::protobuf::Message& message) {
  const auto json = MessageToJson(message);
  return json.ok() ? json->dump() : "{}";  // A file's name that is no text.
}

absl::StatusOr<std::vector<v1::Job>> NewestJobs(const Gateway& gateway, const std::string& secret,
                                                int most) {
  std::vector<v1::Job> jobs;
  v1::ListJobsRequest request;
  request.set_all(true);
  request.set_page_size(most);
  do {
    ASSIGN_OR_RETURN(v1::ListJobsResponse page, gateway.Call(&Api::ListJobs, secret, request));
    for (v1::Job& job : *page.mutable_jobs())
      if (static_cast<int>(jobs.size()) < most) jobs.push_back(std::move(job));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && static_cast<int>(jobs.size()) < most);
  return jobs;
}

absl::StatusOr<std::string> EventFeed::Next() {
  ASSIGN_OR_RETURN(const v1::ServerInfo server,
                   gateway_.Call(&Api::GetServerInfo, secret_, v1::GetServerInfoRequest()));
  ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, NewestJobs(gateway_, secret_, kMaxPageJobs));
  std::string events;
  std::string now = JsonOf(server);
  if (now != server_) absl::StrAppend(&events, Event("server", now));
  server_ = std::move(now);
  std::map<std::string, std::string> told;
  std::vector<std::string> changed;
  for (const v1::Job& job : jobs) {
    std::string json = JsonOf(job);
    const auto before = jobs_.find(KeyOf(job));
    if (before == jobs_.end() || before->second != json) changed.push_back(json);
    told.emplace(KeyOf(job), std::move(json));
  }
  std::vector<std::string> gone;
  for (const auto& [id, json] : jobs_)
    if (!told.contains(id)) gone.push_back(absl::StrCat("\"", id, "\""));
  jobs_ = std::move(told);
  if (!changed.empty())
    absl::StrAppend(&events, Event("jobs", absl::StrCat("[", absl::StrJoin(changed, ","), "]")));
  if (!gone.empty())
    absl::StrAppend(&events, Event("gone", absl::StrCat("[", absl::StrJoin(gone, ","), "]")));
  return events;
}

}  // namespace snug::server
