#include "server/place/job_queue.h"

namespace snug::server {

void JobQueue::Put(QueuedJob job) {
  Remove(job.id);
  Group& group = groups_[NeedsOf(job)];
  if (group.jobs++ == 0) group.number = next_group_++;
  job.group = group.number;
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
