#include "server/job/job_index.h"

#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"

namespace snug::server {
namespace {

// A resource's name, tenants/TENANT/jobs/ID, is as good as its id.
absl::string_view IdOf(absl::string_view name) {
  const size_t at = name.find("/jobs/");
  if (!absl::StartsWith(name, "tenants/") || at == absl::string_view::npos) return name;
  return name.substr(at + strlen("/jobs/"));
}

}  // namespace

void JobIndex::SetReasons(Reasons reasons) {
  absl::MutexLock lock(&mutex_);
  reasons_ = std::move(reasons);
}

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
    if (entry.watchers.empty()) watched_.erase(record.id());
    // From now on the archive has it. What was committed before is there already.
    if (archive_ != nullptr && IsTerminal(record.state())) Forget(jobs_.find(record.id()));
  }
  for (const std::shared_ptr<JobWatcher>& watcher : watchers) watcher->OnChange(job);
}

void JobIndex::Forget(Entries::iterator entry) {
  watched_.erase(entry->first);
  by_order_.erase(entry->second.order);
  jobs_.erase(entry);
}

void JobIndex::Remove(const std::string& id) {
  absl::MutexLock lock(&mutex_);
  const auto found = jobs_.find(id);
  if (found != jobs_.end()) Forget(found);
}

absl::StatusOr<JobIndex::Found> JobIndex::LocateInMemory(absl::string_view id,
                                                         const Principal& who) const {
  const auto first = jobs_.lower_bound(id);
  auto match = jobs_.end();
  int matches = 0;
  for (auto it = first; it != jobs_.end() && absl::StartsWith(it->first, id); ++it) {
    if (!who.MaySee(*it->second.job)) continue;
    if (++matches == 1) match = it;
    if (it->first == id) break;
  }
  if (matches == 0) return JobNotFound(id);
  if (matches > 1 && match->first != id) return AmbiguousJob(id, matches);
  return Found{match->second.job, match->second.output_dir};
}

absl::StatusOr<JobIndex::Found> JobIndex::Locate(absl::string_view id, const Principal& who) const {
  id = IdOf(id);
  if (id.empty())
    return InvalidRequest({{"id", "is missing: a job's id or a beginning of it", "BAD_FIELD"}});
  {
    absl::ReaderMutexLock lock(&mutex_);
    if (archive_ == nullptr) return LocateInMemory(id, who);
    const auto found = jobs_.find(id);
    if (found != jobs_.end() && who.MaySee(*found->second.job))
      return Found{found->second.job, found->second.output_dir};
  }
  ASSIGN_OR_RETURN(JobRecord record, archive_->FindJob(id, who.SeesAll() ? "" : who.name()));
  if (JobPtr live = FindLive(record.id())) return Found{std::move(live), ""};
  return Found{std::make_shared<const v1::Job>(std::move(record.job)),
               std::move(record.output_dir)};
}

JobPtr JobIndex::FindLive(absl::string_view id) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : found->second.job;
}

std::string JobIndex::LiveJobOn(absl::string_view dataset) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto names = [&](const auto& entry) {
    const v1::JobSpec& spec = entry.second.job->spec();
    const auto is = [&](const v1::DatasetSource& source) { return source.path() == dataset; };
    return !IsTerminal(entry.second.job->state()) &&
           (spec.dataset() == dataset || spec.eval_dataset() == dataset ||
            absl::c_any_of(spec.datasets(), is));
  };
  const auto found = absl::c_find_if(jobs_, names);
  return found == jobs_.end() ? std::string() : found->first;
}

absl::StatusOr<JobPtr> JobIndex::Find(absl::string_view id, const Principal& who) const {
  ASSIGN_OR_RETURN(Found found, Locate(id, who));
  FillReasons({&found.job});
  return found.job;
}

void JobIndex::FillReasons(const std::vector<JobPtr*>& jobs) const {
  std::set<std::string> queued;
  for (const JobPtr* job : jobs)
    if ((*job)->state() == v1::Job::STATE_QUEUED) queued.insert((*job)->id());
  if (queued.empty()) return;
  Reasons ask;
  {
    absl::ReaderMutexLock lock(&mutex_);
    ask = reasons_;
  }
  if (!ask) return;
  const std::map<std::string, std::string> reasons = ask(queued);
  for (JobPtr* job : jobs) {
    const auto reason = reasons.find((*job)->id());
    if (reason == reasons.end() || (*job)->reason() == reason->second) continue;
    auto changed = std::make_shared<v1::Job>(**job);
    changed->set_reason(reason->second);
    *job = std::move(changed);
  }
}

JobPage JobIndex::ListInMemory(const JobQuery& query) const {
  absl::ReaderMutexLock lock(&mutex_);
  JobPage page;
  // False: the page is full, and there is more.
  const auto add = [&](int64_t order, const std::string& id) ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    const JobPtr& job = jobs_.find(id)->second.job;
    if (!Matches(query, *job)) return true;
    if (page.jobs.size() == query.limit) {
      page.next = page.jobs.back().order;
      return false;
    }
    page.jobs.push_back({order, job});
    return true;
  };
  if (query.newest_first) {
    auto it = query.after == 0 ? by_order_.end() : by_order_.lower_bound(query.after);
    while (it != by_order_.begin() && add(std::prev(it)->first, std::prev(it)->second)) --it;
  } else {
    auto it = by_order_.upper_bound(query.after);
    while (it != by_order_.end() && add(it->first, it->second)) ++it;
  }
  return page;
}

absl::StatusOr<JobPage> JobIndex::List(const JobQuery& query) const {
  JobPage page;
  if (archive_ == nullptr || query.live_only()) {
    page = ListInMemory(query);
  } else {
    ASSIGN_OR_RETURN(page, archive_->ListJobs(query));
    for (ListedJob& listed : page.jobs)
      if (JobPtr live = FindLive(listed.job->id())) listed.job = std::move(live);
  }
  std::vector<JobPtr*> jobs;
  for (ListedJob& listed : page.jobs) jobs.push_back(&listed.job);
  FillReasons(jobs);
  return page;
}

absl::StatusOr<JobPtr> JobIndex::Watch(absl::string_view id,
                                       const std::shared_ptr<JobWatcher>& watcher) {
  ASSIGN_OR_RETURN(Found found, Locate(id, DaemonPrincipal()));
  {
    absl::MutexLock lock(&mutex_);
    const auto entry = jobs_.find(found.job->id());
    if (entry != jobs_.end()) {
      found.job = entry->second.job;
      entry->second.watchers.push_back(watcher);
      watched_.insert(entry->first);
    }
  }
  // It ended between the two looks: then nobody tells any more, and the archive has its end.
  if (!IsTerminal(found.job->state()) && FindLive(found.job->id()) == nullptr) {
    ASSIGN_OR_RETURN(found, Locate(found.job->id(), DaemonPrincipal()));
  }
  FillReasons({&found.job});
  return found.job;
}

std::set<std::string> JobIndex::Watched() const {
  absl::ReaderMutexLock lock(&mutex_);
  return watched_;
}

absl::StatusOr<std::string> JobIndex::OutputOf(const std::string& id) const {
  ASSIGN_OR_RETURN(const Found found, Locate(id, DaemonPrincipal()));
  if (!IsTerminal(found.job->state()) || found.output_dir.empty())
    return WrongState(found.job->id(), "take the output of", NameOf(found.job->state()));
  return found.output_dir;
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
