#include "server/scheduler/like_jobs.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace snug::server {

std::string AlikeKey(const JobRecord& record) {
  const v1::Job& job = record.job;
  if (!record.train_data.empty() || job.epoch() > 0 || job.extends_step() > 0) return record.key();
  v1::JobSpec spec = job.spec();
  spec.clear_display_name();
  return absl::StrCat(job.owner(), "\n", job.priority(), "\n", spec.SerializeAsString());
}

bool LikeJobs::Add(const std::string& key, Member member) {
  absl::MutexLock lock(&mutex_);
  std::vector<Member>& members = waiting_[key];
  members.push_back(std::move(member));
  return members.size() == 1;
}

std::vector<LikeJobs::Member> LikeJobs::Take(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  auto found = waiting_.extract(key);
  return found.empty() ? std::vector<Member>() : std::move(found.mapped());
}

}  // namespace snug::server
