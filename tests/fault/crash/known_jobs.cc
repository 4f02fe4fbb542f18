#include "tests/fault/crash/known_jobs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace snug::crash {
namespace {

constexpr size_t kMostEnded = 8;  // More are deleted first of all.
constexpr size_t kSteady = 2;
constexpr int64_t kManyLive = 8;  // More are cancelled rather than gone on with.

}  // namespace

int64_t TokenOf(const std::string& display_name) {
  int64_t token = 0;
  const size_t equals = display_name.rfind("token=");
  if (equals == std::string::npos || !absl::SimpleAtoi(display_name.substr(equals + 6), &token))
    return 0;
  return token;
}

std::optional<Submit> KnownJobs::Next(size_t most_live, const MakeRequest& make) {
  absl::MutexLock lock(&mutex_);
  size_t live = 0, steady = 0;
  for (auto& [token, known] : known_) {
    live += Lives(known);
    steady += Lives(known) && known.steady;
    if (!known.id.empty() || known.on_its_way) continue;
    known.on_its_way = known.sent = true;
    return Submit{token, known.request};
  }
  if (live >= most_live) return std::nullopt;
  const int64_t token = ++tokens_;
  Known& known = known_[token];
  known.steady = steady < kSteady && token > 1;  // The first is waited for.
  known.request = make(token, known.steady);
  known.on_its_way = known.sent = true;
  return Submit{token, known.request};
}

void KnownJobs::Answered(int64_t token, const v1::Job* made, bool lost) {
  absl::MutexLock lock(&mutex_);
  Known& known = known_[token];
  known.on_its_way = false;
  known.sent = lost;
  if (made == nullptr) return;
  if (!known.id.empty() && known.id != made->id())
    Blame(Wrong::kDoubled, absl::StrCat("one request made ", known.id, " and ", made->id()));
  known.id = made->id();
  Note(known, *made);
}

std::optional<Wish> KnownJobs::Change(std::mt19937& random) {
  absl::MutexLock lock(&mutex_);
  std::vector<std::pair<const int64_t, Known>*> there, ended, live;
  for (auto& entry : known_) {
    const Known& known = entry.second;
    if (known.id.empty() || known.deleted || known.delete_asked || (known.steady && Lives(known)))
      continue;
    there.push_back(&entry);
    (Lives(known) ? live : ended).push_back(&entry);
  }
  if (there.empty()) return std::nullopt;
  const auto wish = [&](const auto& among, Order order) {
    auto& [token, known] = *among[random() % among.size()];
    known.delete_asked |= order == Order::kDelete;
    return Wish{token, known.id, order};
  };
  if (ended.size() > kMostEnded) return wish(ended, Order::kDelete);
  if (live.size() > kManyLive) {  // The oldest have workers, most of them.
    live.erase(live.begin(), live.begin() + static_cast<std::ptrdiff_t>(live.size() / 2));
    return wish(live, Order::kCancel);
  }
  const Order orders[] = {Order::kCancel, Order::kPause,  Order::kUpdate, Order::kResume,
                          Order::kResume, Order::kResume, Order::kDelete};
  const Order order = orders[random() % std::size(orders)];
  if (order == Order::kDelete)
    return ended.empty() ? std::nullopt : std::optional(wish(ended, order));
  return wish(there, order);
}

void KnownJobs::Changed(const Wish& wish, const v1::Job* shown, bool lost) {
  absl::MutexLock lock(&mutex_);
  const auto found = known_.find(wish.token);
  if (found == known_.end() || lost) return;
  Known& known = found->second;
  if (shown == nullptr) {
    if (wish.order == Order::kDelete) known.delete_asked = false;
    return;
  }
  known.deleted |= wish.order == Order::kDelete;
  // Answers may come in another order than they were given: only a start's word says that a job
  // goes on behind its end.
  if (server::IsTerminal(shown->state()) || !server::IsTerminal(known.state)) Note(known, *shown);
}

void KnownJobs::Compare(const std::vector<v1::Job>& shown) {
  absl::MutexLock lock(&mutex_);
  std::map<int64_t, const v1::Job*> there;
  for (const v1::Job& job : shown) {
    const int64_t token = TokenOf(job.display_name());
    const v1::Job*& one = there[token];
    if (one != nullptr)
      Blame(Wrong::kDoubled, absl::StrCat(one->id(), " and ", job.id(), " are one request's"));
    one = &job;
    if (!known_.contains(token)) Blame(Wrong::kOther, job.id() + " was never asked for");
  }
  for (auto entry = known_.begin(); entry != known_.end();) {
    Known& known = entry->second;
    const auto found = there.find(entry->first);
    const v1::Job* job = found == there.end() ? nullptr : found->second;
    CompareOne(known, job);
    const bool gone = known.deleted || (known.delete_asked && job == nullptr);
    entry = gone ? known_.erase(entry) : std::next(entry);
  }
}

void KnownJobs::CompareOne(Known& known, const v1::Job* there) {
  if (known.deleted && there != nullptr)
    Blame(Wrong::kOther, known.id + " was deleted, and is there");
  if (!known.id.empty() && there == nullptr && !known.delete_asked)
    Blame(Wrong::kLost, known.id + " was acknowledged, and is not there");
  if (there == nullptr || known.deleted) return;
  if (!known.id.empty() && known.id != there->id())
    Blame(Wrong::kOther, absl::StrCat(known.id, " is called ", there->id(), " now"));
  known.delete_asked = false;  // It was not deleted; whoever asked is gone.
  Note(known, *there);
}

void KnownJobs::Note(Known& known, const v1::Job& shown) {
  if (server::IsTerminal(known.state) && shown.state() != known.state)
    Blame(Wrong::kOther, absl::StrCat(shown.id(), " has been ", server::NameOf(known.state),
                                      " and is ", server::NameOf(shown.state())));
  if (server::HasAttempt(known.state) && shown.state() == v1::Job::STATE_QUEUED)
    known.steady = false;  // Its worker was lost: it waits for some seconds, and others run.
  known.state = shown.state();
}

std::vector<std::string> KnownJobs::Ended() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> ended;
  for (const auto& [token, known] : known_)
    if (!known.id.empty() && !known.delete_asked && !known.deleted && !Lives(known))
      ended.push_back(known.id);
  return ended;
}

int64_t KnownJobs::Unacknowledged() const {
  absl::MutexLock lock(&mutex_);
  return std::count_if(known_.begin(), known_.end(), [](const auto& entry) {
    return entry.second.sent && entry.second.id.empty();
  });
}

int64_t KnownJobs::OnTheirWay() const {
  absl::MutexLock lock(&mutex_);
  return std::count_if(known_.begin(), known_.end(),
                       [](const auto& entry) { return entry.second.on_its_way; });
}

int64_t KnownJobs::Live() const {
  absl::MutexLock lock(&mutex_);
  return std::count_if(known_.begin(), known_.end(),
                       [](const auto& entry) { return Lives(entry.second); });
}

int64_t KnownJobs::tokens() const {
  absl::MutexLock lock(&mutex_);
  return tokens_;
}

std::vector<Violation> KnownJobs::TakeViolations() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(violations_, {});
}

void KnownJobs::Blame(Wrong kind, std::string what) {
  violations_.push_back({kind, std::move(what)});
}

}  // namespace snug::crash
