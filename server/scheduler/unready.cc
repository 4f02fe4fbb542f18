#include "server/scheduler/unready.h"

#include <iterator>
#include <utility>

namespace snug::server {

void Unready::Add(const JobQueue::Key& key, const std::string& user) {
  const auto apart = apart_.find(user);
  (apart == apart_.end() ? jobs_ : apart->second).emplace(key, user);
}

void Unready::Remove(const JobQueue::Key& key, const std::string& user) {
  jobs_.erase(key);
  const auto apart = apart_.find(user);
  if (apart == apart_.end()) return;
  apart->second.erase(key);
  if (apart->second.empty()) apart_.erase(apart);
}

bool Unready::Visit(absl::Duration now,
                    const std::function<size_t(const std::string& user)>& room_of,
                    const std::function<Answer(const std::string& job)>& ask) {
  const auto due = later_.upper_bound(now);
  for (auto at = later_.begin(); at != due; at = later_.erase(at))
    jobs_.insert(std::move(at->second));
  for (auto user = apart_.begin(); user != apart_.end();) {
    Jobs& jobs = user->second;
    for (size_t room = room_of(user->first); room > 0 && !jobs.empty(); --room)
      jobs_.insert(jobs.extract(jobs.begin()));
    user = jobs.empty() ? apart_.erase(user) : std::next(user);
  }
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    const Answer answer = ask(std::get<std::string>(at->first));
    if (answer.kind == Answer::kAllFull) return true;
    const auto job = at++;
    if (answer.kind == Answer::kDone) jobs_.erase(job);
    if (answer.kind == Answer::kLater) later_.emplace(answer.until, jobs_.extract(job));
    if (answer.kind == Answer::kUserFull) apart_[job->second].insert(jobs_.extract(job));
  }
  return !apart_.empty();
}

}  // namespace snug::server
