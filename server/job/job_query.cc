#include "server/job/job_query.h"

#include <algorithm>

#include "google/protobuf/util/time_util.h"

namespace snug::server {

bool JobQuery::live_only() const {
  return !states.empty() && std::none_of(states.begin(), states.end(), IsTerminal);
}

bool Matches(const JobQuery& query, const v1::Job& job) {
  using google::protobuf::util::TimeUtil;
  if (!query.states.empty() && !query.states.contains(job.state())) return false;
  if (!query.owner.empty() && query.owner != job.owner()) return false;
  if (!query.display_name.empty() && query.display_name != job.display_name()) return false;
  const int64_t created_us = TimeUtil::TimestampToMicroseconds(job.create_time());
  if (created_us < query.created_from_us || created_us >= query.created_until_us) return false;
  return std::all_of(query.labels.begin(), query.labels.end(), [&](const auto& label) {
    const auto found = job.labels().find(label.first);
    return found != job.labels().end() && found->second == label.second;
  });
}

}  // namespace snug::server
