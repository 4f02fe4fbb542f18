#include "server/job/job_index.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/job_key.h"
#include "server/job/names.h"

namespace snug::server {

void JobIndex::SetReasons(Reasons reasons) {
  absl::MutexLock lock(&mutex_);
  reasons_ = std::move(reasons);
}

void JobIndex::Put(const JobRecord& record) {
  std::vector<std::shared_ptr<JobWatcher>> watchers;
  auto job = std::make_shared<const v1::Job>(record.job);
  {
    absl::MutexLock lock(&mutex_);
    Entry& entry = jobs_[record.key()];
    entry.job = job;
    entry.order = record.order;
    entry.output_dir = record.output_dir;
    by_order_[record.order] = record.key();
    std::vector<std::weak_ptr<JobWatcher>> alive;
    for (const std::weak_ptr<JobWatcher>& weak : entry.watchers) {
      std::shared_ptr<JobWatcher> watcher = weak.lock();
      if (watcher == nullptr) continue;
      alive.push_back(weak);
      watchers.push_back(std::move(watcher));
    }
    entry.watchers = std::move(alive);
    if (entry.watchers.empty()) watched_.erase(record.key());
    // From now on the archive has it. What was committed before is there already.
    if (archive_ != nullptr && IsTerminal(record.state())) Forget(jobs_.find(record.key()));
  }
  for (const std::shared_ptr<JobWatcher>& watcher : watchers) watcher->OnChange(job);
}

void JobIndex::Forget(Entries::iterator entry) {
  watched_.erase(entry->first);
  by_order_.erase(entry->second.order);
  jobs_.erase(entry);
}

void JobIndex::Remove(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  const auto found = jobs_.find(key);
  if (found != jobs_.end()) Forget(found);
}

absl::StatusOr<JobIndex::Found> JobIndex::Locate(const std::string& key) const {
  {
    absl::ReaderMutexLock lock(&mutex_);
    const auto found = jobs_.find(key);
    if (found != jobs_.end()) return Found{found->second.job, found->second.output_dir};
  }
  if (archive_ == nullptr) return JobNotFound(IdIn(key));
  ASSIGN_OR_RETURN(JobRecord record, archive_->FindJob(key));
  return Found{std::make_shared<const v1::Job>(std::move(record.job)),
               std::move(record.output_dir)};
}

absl::StatusOr<JobPtr> JobIndex::FindNamed(absl::string_view name, const Principal& who) const {
  const std::optional<ResourceName> parsed = ParseName(name);
  if (!parsed || parsed->kind != ResourceName::kJob) return JobNotFound(name);
  // One of a version before keys has its id for its key.
  const std::set<std::string> keys = {KeyFor(parsed->tenant, parsed->id), parsed->id};
  for (const std::string& key : keys) {
    const absl::StatusOr<Found> found = Locate(key);
    if (!found.ok() && !absl::IsNotFound(found.status())) return found.status();
    if (found.ok() && JobName(*found->job) == name && who.MaySee(*found->job)) return found->job;
  }
  return JobNotFound(name);
}

absl::StatusOr<std::string> JobIndex::SearchInMemory(absl::string_view text,
                                                     const Principal& who) const {
  JobSearch search(text, TenantOf(who.name()));
  absl::ReaderMutexLock lock(&mutex_);
  for (auto it = jobs_.lower_bound(text); it != jobs_.end() && absl::StartsWith(it->first, text);
       ++it)
    if (who.MaySee(*it->second.job)) search.Consider(it->first, TenantOf(it->second.job->owner()));
  return search.Found();
}

JobPtr JobIndex::FindLive(absl::string_view key) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto found = jobs_.find(key);
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

absl::StatusOr<JobPtr> JobIndex::Find(const std::string& key) const {
  ASSIGN_OR_RETURN(Found found, Locate(key));
  FillReasons({&found.job});
  return found.job;
}

absl::StatusOr<JobPtr> JobIndex::Search(absl::string_view text, const Principal& who) const {
  if (text.empty())
    return InvalidRequest({{"id", "is missing: a job's id or a beginning of it", "BAD_FIELD"}});
  if (IsName(text)) {
    ASSIGN_OR_RETURN(JobPtr named, FindNamed(text, who));
    FillReasons({&named});
    return named;
  }
  if (const std::string name = NameSpelled(text); !name.empty()) {
    absl::StatusOr<JobPtr> named = Search(name, who);
    if (absl::IsNotFound(named.status())) return JobNotFound(text);
    return named;
  }
  // Most ask for a job of their own by its whole id.
  const std::string tenant = TenantOf(who.name());
  JobPtr own = FindLive(KeyFor(tenant, text));
  if (own != nullptr && who.MaySee(*own) && TenantOf(own->owner()) == tenant) {
    FillReasons({&own});
    return own;
  }
  if (archive_ == nullptr) {
    ASSIGN_OR_RETURN(const std::string key, SearchInMemory(text, who));
    return Find(key);
  }
  ASSIGN_OR_RETURN(JobRecord record, archive_->SearchJob(text, who));
  if (FindLive(record.key()) != nullptr) return Find(record.key());
  return std::make_shared<const v1::Job>(std::move(record.job));
}

void JobIndex::FillReasons(const std::vector<JobPtr*>& jobs) const {
  std::set<std::string> queued;
  for (const JobPtr* job : jobs)
    if ((*job)->state() == v1::Job::STATE_QUEUED) queued.insert(KeyOf(**job));
  if (queued.empty()) return;
  Reasons ask;
  {
    absl::ReaderMutexLock lock(&mutex_);
    ask = reasons_;
  }
  if (!ask) return;
  const std::map<std::string, std::string> reasons = ask(queued);
  for (JobPtr* job : jobs) {
    const auto reason = reasons.find(KeyOf(**job));
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
      if (JobPtr live = FindLive(KeyOf(*listed.job))) listed.job = std::move(live);
  }
  std::vector<JobPtr*> jobs;
  for (ListedJob& listed : page.jobs) jobs.push_back(&listed.job);
  FillReasons(jobs);
  return page;
}

absl::StatusOr<JobPtr> JobIndex::Watch(const std::string& key,
                                       const std::shared_ptr<JobWatcher>& watcher) {
  ASSIGN_OR_RETURN(Found found, Locate(key));
  {
    absl::MutexLock lock(&mutex_);
    const auto entry = jobs_.find(key);
    if (entry != jobs_.end()) {
      found.job = entry->second.job;
      entry->second.watchers.push_back(watcher);
      watched_.insert(entry->first);
    }
  }
  // It ended between the two looks: then nobody tells any more, and the archive has its end.
  if (!IsTerminal(found.job->state()) && FindLive(key) == nullptr) {
    ASSIGN_OR_RETURN(found, Locate(key));
  }
  FillReasons({&found.job});
  return found.job;
}

std::set<std::string> JobIndex::Watched() const {
  absl::ReaderMutexLock lock(&mutex_);
  return watched_;
}

absl::StatusOr<std::string> JobIndex::OutputOf(const std::string& key) const {
  ASSIGN_OR_RETURN(const Found found, Locate(key));
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
