#include "server/job/job_index.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"

namespace snug::server {

void JobIndex::Put(const JobRecord& record) {
  std::vector<std::shared_ptr<JobWatcher>> watchers;
  auto job = std::make_shared<const v1::Job>(record.job);
  {
    absl::MutexLock lock(&mutex_);
    Entry& entry = jobs_[record.id()];
    entry.job = job;
    entry.order = record.order;
    entry.output_dir = record.output_dir;
    by_order_[record.order] = record.id();
    std::vector<std::weak_ptr<JobWatcher>> alive;
    for (const std::weak_ptr<JobWatcher>& weak : entry.watchers) {
      std::shared_ptr<JobWatcher> watcher = weak.lock();
      if (watcher == nullptr) continue;
      alive.push_back(weak);
      watchers.push_back(std::move(watcher));
    }
    entry.watchers = std::move(alive);
  }
  for (const std::shared_ptr<JobWatcher>& watcher : watchers) watcher->OnChange(job);
}

absl::StatusOr<JobIndex::Entries::const_iterator> JobIndex::Locate(absl::string_view id,
                                                                   const Principal& who) const {
  if (id.empty())
    return InvalidRequest({{"id", "is missing: a job's id or a beginning of it", "BAD_FIELD"}});
  const auto first = jobs_.lower_bound(id);
  auto match = jobs_.end();
  int matches = 0;
  for (auto it = first; it != jobs_.end() && absl::StartsWith(it->first, id); ++it) {
    if (!who.MaySee(*it->second.job)) continue;
    if (it->first == id) return it;
    if (++matches == 1) match = it;
  }
  if (matches > 1) return AmbiguousJob(id, matches);
  if (matches == 0) return JobNotFound(id);
  return match;
}

absl::StatusOr<JobPtr> JobIndex::Find(absl::string_view id, const Principal& who) const {
  absl::ReaderMutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const auto found, Locate(id, who));
  return found->second.job;
}

std::vector<ListedJob> JobIndex::List(int64_t after_order, size_t limit, bool all,
                                      const Principal& who) const {
  absl::ReaderMutexLock lock(&mutex_);
  std::vector<ListedJob> listed;
  for (auto it = by_order_.upper_bound(after_order); it != by_order_.end(); ++it) {
    if (listed.size() == limit) break;
    const JobPtr& job = jobs_.find(it->second)->second.job;
    if ((all || !IsTerminal(job->state())) && who.MaySee(*job)) listed.push_back({it->first, job});
  }
  return listed;
}

absl::StatusOr<JobPtr> JobIndex::Watch(absl::string_view id,
                                       const std::shared_ptr<JobWatcher>& watcher) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const auto found, Locate(id, DaemonPrincipal()));
  jobs_.find(found->first)->second.watchers.push_back(watcher);
  return found->second.job;
}

void JobIndex::PutRequest(const RequestRecord& request) {
  absl::MutexLock lock(&mutex_);
  requests_[request.request_id] = request;
}

std::optional<RequestRecord> JobIndex::FindRequest(const std::string& request_id,
                                                   int64_t now_us) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto found = requests_.find(request_id);
  if (found == requests_.end() || found->second.expires_us < now_us) return std::nullopt;
  return found->second;
}

absl::StatusOr<std::string> JobIndex::OutputOf(const std::string& id) const {
  absl::ReaderMutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const auto found, Locate(id, DaemonPrincipal()));
  const v1::Job& job = *found->second.job;
  if (job.state() != v1::Job::SUCCEEDED)
    return WrongState(job.id(), "take the output of", NameOf(job.state()));
  return found->second.output_dir;
}

absl::StatusOr<std::string> JobIndex::FinishedModel(const std::string& id,
                                                    const Principal& who) const {
  ASSIGN_OR_RETURN(const JobPtr job, Find(id, who));
  if (job->spec().method() != v1::JobSpec::FULL)
    return absl::FailedPreconditionError(absl::StrCat(
        "job \"", job->id(), "\" made an adapter, not a model: name a job of method full"));
  return OutputOf(job->id());
}

void JobIndex::PutDevices(std::vector<v1::Device> devices) {
  absl::MutexLock lock(&mutex_);
  devices_ = std::move(devices);
}

std::vector<v1::Device> JobIndex::devices() const {
  absl::ReaderMutexLock lock(&mutex_);
  return devices_;
}

}  // namespace snug::server
