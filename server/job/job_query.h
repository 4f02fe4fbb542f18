// Which jobs a list shows, and a page of it.
#ifndef SERVER_JOB_JOB_QUERY_H_
#define SERVER_JOB_JOB_QUERY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "server/job/states.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

using JobPtr = std::shared_ptr<const v1::Job>;

struct JobQuery {
  std::set<JobState> states;  // Empty: any.
  std::string owner;          // Empty: any.
  std::string display_name;   // Empty: any.
  std::map<std::string, std::string> labels;
  int64_t created_from_us = 0;
  int64_t created_until_us = INT64_MAX;  // Not included.
  bool newest_first = true;
  int64_t after = 0;  // Order of the last job of the page before; 0: from the beginning.
  size_t limit = 50;
  bool whole = false;  // With their specs.

  bool live_only() const;
};

struct ListedJob {
  int64_t order = 0;
  JobPtr job;
};

struct JobPage {
  std::vector<ListedJob> jobs;
  int64_t next = 0;  // `after` of the page behind it; 0: this is the last.
};

bool Matches(const JobQuery& query, const v1::Job& job);

}  // namespace snug::server

#endif  // SERVER_JOB_JOB_QUERY_H_
