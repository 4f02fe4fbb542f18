#include "server/retention/keeper.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/time/clock.h"
#include "google/protobuf/util/time_util.h"
#include "proto/snug/status_macros.h"
#include "server/data/prepared_folders.h"
#include "server/job/job_key.h"
#include "server/job/log.h"
#include "server/retention/leavings.h"
#include "server/scheduler/clock.h"

namespace snug::server {
namespace {

constexpr size_t kPage = 100;  // Jobs; 2 ms of the store's thread.
constexpr absl::Duration kAfterPage = absl::Milliseconds(50);
constexpr absl::Duration kFirstSweep = absl::Seconds(30);  // A start has other things to do.
// A new job that names this one is on its way into the store.
constexpr int kTries = 20;
constexpr absl::Duration kBetweenTries = absl::Milliseconds(7);
constexpr int64_t kNamesPage = 1000;                       // Rows, of which two columns are read.
constexpr absl::Duration kMakingReady = absl::Hours(1);    // From its prepared data to its row.
constexpr absl::Duration kMakingAJob = absl::Seconds(10);  // From its files' names to its row.
constexpr absl::Duration kLongestRest = absl::Seconds(1);

absl::Duration Since(const google::protobuf::Timestamp& time) {
  using google::protobuf::util::TimeUtil;
  return absl::Microseconds(WallMicros() - TimeUtil::TimestampToMicroseconds(time));
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
  NamedFiles named;
  const absl::Time begin = absl::Now();
  JobQuery query{.limit = kPage, .whole = true};
  do {
    const absl::StatusOr<JobPage> page = parts_.store.ListJobs(query);
    if (!page.ok()) return spdlog::error("ended jobs are not swept: {}", page.status().message());
    for (const ListedJob& listed : page->jobs)
      if (!Look(*listed.job, sweep, named)) return;
    query.after = page->next;
    if (!Rest(kAfterPage)) return;
  } while (query.after != 0);
  if (parts_.limits.files.any()) SweepFiles(named, begin - kMakingAJob);
  if (parts_.limits.datasets.any()) SweepDatasets();
  parts_.metrics.Swept(absl::Now(), sweep.held());
}

bool Keeper::Look(const v1::Job& job, Sweep& sweep, NamedFiles& named) {
  const Leavings leavings =
      IsTerminal(job.state()) ? LeavingsOf(parts_.state_dir, KeyOf(job)) : Leavings();
  const Verdict verdict = sweep.Judge(job, Since(job.end_time()), leavings);
  const absl::Time begin = absl::Now();
  if (!verdict.job) named.Note(job);
  if (verdict.job) Remove(KeyOf(job), Leaving::kJob, leavings.all_bytes);
  if (verdict.checkpoints) Remove(KeyOf(job), Leaving::kCheckpoints, leavings.checkpoint_bytes);
  if (verdict.logs) Remove(KeyOf(job), Leaving::kLogs, leavings.log_bytes);
  // As long as it took: half of the disk's time is for others.
  return !verdict.anything() || Rest(std::min(absl::Now() - begin, kLongestRest));
}

void Keeper::SweepFiles(const NamedFiles& named, absl::Time since) {
  for (const std::string& owner : parts_.uploads.Owners()) {
    std::vector<SentFile> sent;
    std::map<std::string, v1::File> files;
    for (v1::File& file : parts_.uploads.List(owner)) {
      const absl::StatusOr<std::string> path = parts_.uploads.PathOf(owner, file.id());
      sent.push_back({.id = file.id(),
                      .bytes = file.bytes(),
                      .age = Since(file.create_time()),
                      .named = !path.ok() || named.Has(*path)});
      files[file.id()] = std::move(file);
    }
    for (const std::string& id : FilesToGo(parts_.limits.files, sent)) {
      RemoveFile(owner, files[id], since);
      if (!Rest(kAfterPage)) return;
    }
  }
}

absl::StatusOr<std::set<std::string>> Keeper::NamedDatasets() {
  std::set<std::string> named;
  int64_t last = -1, rows = 0;
  do {
    rows = 0;
    RETURN_IF_ERROR(parts_.store.Read([&](Database& database) {
      return database.Query(
          "SELECT arrival, train_data, eval_data FROM jobs WHERE arrival > ?1 ORDER BY arrival "
          "LIMIT ?2",
          {last, kNamesPage}, [&](const Row& row) {
            last = row.Int(0);
            ++rows;
            named.insert({row.Text(1), row.Text(2)});
            return absl::OkStatus();
          });
    }));
    if (!Rest(kAfterPage)) return absl::CancelledError("the daemon ends");
  } while (rows == kNamesPage);
  return named;
}

// A job that is being made ready uses a folder before its row says so. Using it makes it new.
void Keeper::SweepDatasets() {
  const absl::StatusOr<std::set<std::string>> named = NamedDatasets();
  if (absl::IsCancelled(named.status())) return;
  if (!named.ok())
    return spdlog::error("prepared datasets are not swept: {}", named.status().message());
  std::vector<SentFile> datasets;
  std::map<std::string, absl::Time> used;
  for (const std::string& folder : PreparedIn(parts_.state_dir + "/datasets")) {
    used[folder] = LastUse(folder);
    const absl::Duration age = absl::Now() - used[folder];
    datasets.push_back({.id = folder,
                        .bytes = BytesBelow(folder),
                        .age = age,
                        .named = named->contains(folder) || age < kMakingReady});
  }
  std::sort(datasets.begin(), datasets.end(),
            [](const SentFile& a, const SentFile& b) { return a.age < b.age; });
  for (const std::string& folder : FilesToGo(parts_.limits.datasets, datasets)) {
    const int64_t bytes = BytesBelow(folder);
    if (LastUse(folder) != used[folder]) continue;
    RemoveFolder(folder);
    spdlog::info("{}: removed by retention: {} bytes", folder, bytes);
    parts_.metrics.Removed("dataset", bytes);
    if (!Rest(kAfterPage)) return;
  }
}

void Keeper::RemoveFile(const std::string& owner, const v1::File& file, absl::Time since) {
  const absl::StatusOr<bool> removed = parts_.uploads.DeleteUnless(
      owner, file.id(), since,
      [&](const std::string& path) { return !parts_.index.LiveJobOn(path).empty(); });
  if (!removed.ok() || !*removed) return;  // Its owner has deleted it, or names it since.
  spdlog::info("{} of {}: removed by retention: {} bytes", file.id(), owner, file.bytes());
  parts_.metrics.Removed("file", file.bytes());
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
