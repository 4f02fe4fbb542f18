#include "server/place/job_queue.h"

#include <tuple>
#include <utility>

namespace snug::server {
namespace {

// To look a group up by, without a copy of the plans.
auto NeedsOf(const QueuedJob& job) {
  return std::tie(job.no_steps, job.budget_bytes, job.owner, job.shared, job.plans);
}

}  // namespace

void JobQueue::Put(QueuedJob job) {
  Remove(job.id);
  auto group = groups_.find(NeedsOf(job));
  if (group == groups_.end()) group = groups_.emplace(NeedsOf(job), Group{next_group_++}).first;
  ++group->second.jobs;
  job.group = group->second.number;
  const Key key(-job.priority, job.order, job.id);
  keys_[job.id] = key;
  jobs_.emplace(key, std::move(job));
}

void JobQueue::Remove(const std::string& id) {
  const auto key = keys_.find(id);
  if (key == keys_.end()) return;
  const auto job = jobs_.find(key->second);
  const auto group = groups_.find(NeedsOf(job->second));
  if (--group->second.jobs == 0) groups_.erase(group);
  jobs_.erase(job);
  keys_.erase(key);
}

const QueuedJob* JobQueue::Find(const std::string& id) const {
  const auto key = keys_.find(id);
  return key == keys_.end() ? nullptr : &jobs_.find(key->second)->second;
}

}  // namespace snug::server
