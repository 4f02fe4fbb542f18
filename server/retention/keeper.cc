#include "server/retention/keeper.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "google/protobuf/util/time_util.h"
#include "server/job/log.h"
#include "server/retention/leavings.h"
#include "server/scheduler/clock.h"

namespace snug::server {
namespace {

constexpr size_t kPage = 100;  // Jobs; 2 ms of the store's thread.
constexpr absl::Duration kAfterPage = absl::Milliseconds(50);
constexpr absl::Duration kFirstSweep = absl::Seconds(30);  // A start has other things to do.
// While jobs are submitted as fast as the store takes them, there is a moment between two batches.
constexpr int kTries = 20;
constexpr absl::Duration kBetweenTries = absl::Milliseconds(7);
constexpr absl::Duration kLongestRest = absl::Seconds(1);

absl::Duration AgeOf(const v1::Job& job) {
  using google::protobuf::util::TimeUtil;
  return absl::Microseconds(WallMicros() - TimeUtil::TimestampToMicroseconds(job.end_time()));
}

const char* NameOf(Leaving what) {
  if (what == Leaving::kJob) return "job";
  return what == Leaving::kCheckpoints ? "checkpoints" : "logs";
}

}  // namespace

Keeper::Keeper(const KeeperParts& parts) : parts_(parts) {
  if (parts_.limits.any()) thread_ = std::thread([this] { Loop(); });
}

Keeper::~Keeper() {
  stop_.Notify();
  if (thread_.joinable()) thread_.join();
}

bool Keeper::Rest(absl::Duration how_long) const {
  return !stop_.WaitForNotificationWithTimeout(how_long);
}

void Keeper::Loop() {
  if (!Rest(std::min(kFirstSweep, parts_.limits.between_sweeps))) return;
  do SweepOnce();
  while (Rest(parts_.limits.between_sweeps));
}

void Keeper::SweepOnce() {
  Sweep sweep(parts_.limits);
  JobQuery query{.limit = kPage, .whole = true};
  do {
    const absl::StatusOr<JobPage> page = parts_.store.ListJobs(query);
    if (!page.ok()) return spdlog::error("ended jobs are not swept: {}", page.status().message());
    for (const ListedJob& listed : page->jobs)
      if (!Look(*listed.job, sweep)) return;
    query.after = page->next;
    if (!Rest(kAfterPage)) return;
  } while (query.after != 0);
  parts_.metrics.Swept(absl::Now(), sweep.held());
}

bool Keeper::Look(const v1::Job& job, Sweep& sweep) {
  const Leavings leavings =
      IsTerminal(job.state()) ? LeavingsOf(parts_.state_dir, job.id()) : Leavings();
  const Verdict verdict = sweep.Judge(job, AgeOf(job), leavings);
  const absl::Time begin = absl::Now();
  if (verdict.job) Remove(job.id(), Leaving::kJob, leavings.all_bytes);
  if (verdict.checkpoints) Remove(job.id(), Leaving::kCheckpoints, leavings.checkpoint_bytes);
  if (verdict.logs) Remove(job.id(), Leaving::kLogs, leavings.log_bytes);
  // As long as it took: half of the disk's time is for others.
  return !verdict.anything() || Rest(std::min(absl::Now() - begin, kLongestRest));
}

void Keeper::Remove(const std::string& job, Leaving what, int64_t bytes) {
  absl::StatusOr<std::string> aside = absl::UnavailableError("not asked");
  for (int i = 0; i < kTries && absl::IsUnavailable(aside.status()); ++i) {
    if (i > 0 && !Rest(kBetweenTries)) return;
    aside = Removal(parts_.scheduler.core()).TakeAway(job, what);
  }
  if (!aside.ok())  // Somebody refers to it since, or has deleted it. The next sweep looks again.
    return spdlog::info("job {}: its {} stay: {}", job, NameOf(what), aside.status().message());
  if (what == Leaving::kLogs)
    RemoveLogs(parts_.state_dir, job);
  else if (!aside->empty())
    RemoveFolder(*aside);
  spdlog::info("job {}: removed by retention: {}, {} bytes", job, NameOf(what), bytes);
  parts_.metrics.Removed(NameOf(what), bytes);
}

}  // namespace snug::server
