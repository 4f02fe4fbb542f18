#include "tests/fault/crash/points.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace snug::crash {
namespace {

constexpr Where kDaemon = Where::kDaemon, kRestore = Where::kRestore, kShim = Where::kShim,
                kWorker = Where::kWorker;
constexpr absl::Duration kSlow = absl::Seconds(4);
constexpr absl::Duration kBrief = absl::Milliseconds(400);
constexpr int64_t kEnough = 20;  // Hits, with which a point is chosen like others.
constexpr int kOften = 40;       // What is come to hundreds of times in a life.
constexpr const char* kOnlyKill = "kill";
constexpr const char* kKillOrError = "kill error";

}  // namespace

const std::vector<Point>& Points() {
  static const std::vector<Point> points = {
      {"store.commit", kDaemon, "kill error delay:50", kOften},
      {"store.committed", kDaemon, "kill delay:50", kOften},
      {"store.sync_folder", kDaemon, kOnlyKill},
      {"witness.write", kDaemon, kKillOrError, kOften},
      {"witness.written", kDaemon, kOnlyKill, kOften},
      {"witness.sync", kDaemon, kOnlyKill},
      {"spawn.begin", kDaemon, kKillOrError, 3},
      {"spawn.done", kDaemon, kOnlyKill, 3},
      {"spawn.ask", kDaemon, kKillOrError, 1, Needs::kLauncher},
      {"inspect.send", kDaemon, kKillOrError},
      {"inspect.send_files", kDaemon, kKillOrError},
      {"launch.folders", kDaemon, kOnlyKill, 2, Needs::kLaunch},
      {"launch.locked", kDaemon, kOnlyKill, 2, Needs::kLaunch},
      {"launch.stale", kDaemon, kOnlyKill, 1, Needs::kStaleFolder},
      {"file.rename", kDaemon, kKillOrError, 2, Needs::kLaunch},
      {"file.renamed", kDaemon, kOnlyKill, 2, Needs::kLaunch},
      {"link.read", kDaemon, kKillOrError, 3},
      {"link.received", kDaemon, kOnlyKill, kOften},
      {"link.send", kDaemon, kKillOrError, 2},
      {"trash.rename", kDaemon, kKillOrError, 3},
      {"trash.renamed", kDaemon, kOnlyKill, 3},
      {"trash.put_back", kDaemon, kOnlyKill, 1, Needs::kMovedFolder},
      {"copy.sync", kDaemon, kKillOrError, 1, Needs::kBackup},
      {"backup.copied", kDaemon, kOnlyKill, 1, Needs::kBackup},
      {"restore.copied", kRestore, kOnlyKill},
      {"restore.rename", kRestore, kKillOrError, 3},
      {"restore.aside", kRestore, kOnlyKill},
      {"restore.wal_aside", kRestore, kOnlyKill},
      {"restore.renamed", kRestore, kOnlyKill},
      {"audit.rename", kDaemon, kKillOrError, 1, Needs::kFullAuditLog},
      {"audit.renamed", kDaemon, kOnlyKill, 1, Needs::kFullAuditLog},
      {"upload.rename", kDaemon, kKillOrError, 1, Needs::kUpload},
      {"upload.renamed", kDaemon, kOnlyKill, 1, Needs::kUpload},
      {"upload.sync", kDaemon, kKillOrError, 1, Needs::kUpload},
      {"upload.published", kDaemon, kOnlyKill, 1, Needs::kUpload},
      {"upload.gone", kDaemon, kOnlyKill, 1, Needs::kFileDeletion},
      {"removal.rename", kDaemon, kKillOrError, 1, Needs::kNothing, kSlow},
      {"removal.renamed", kDaemon, kOnlyKill, 1, Needs::kNothing, kSlow},
      {"prepare.hand", kDaemon, kKillOrError, 1, Needs::kFreshDataset, kSlow},
      {"prepare.rename", kDaemon, kKillOrError, 1, Needs::kFreshDataset, kSlow},
      {"prepare.renamed", kDaemon, kOnlyKill, 1, Needs::kFreshDataset, kSlow},
      {"webhook.call", kDaemon, kOnlyKill, 1, Needs::kNothing, kSlow},
      {"webhook.called", kDaemon, kOnlyKill, 1, Needs::kNothing, kSlow},
      {"worker.spawn", kShim, kOnlyKill, 1, Needs::kLaunch},
      {"worker.spawned", kShim, kOnlyKill, 1, Needs::kLaunch},
      {"exit.written", kShim, kOnlyKill, 1, Needs::kLaunch, kBrief},
      {"exit.synced", kShim, kOnlyKill, 1, Needs::kLaunch, kBrief},
      {"exit.renamed", kShim, kOnlyKill, 1, Needs::kLaunch, kBrief},
      {"exit.durable", kShim, kOnlyKill, 1, Needs::kLaunch, kBrief},
      {"log.rename", kShim, kOnlyKill, 1, Needs::kLoudWorker, kSlow},
      {"log.renamed", kShim, kOnlyKill, 1, Needs::kLoudWorker, kSlow},
      {"checkpoint.weights", kWorker, kOnlyKill, 1, Needs::kLaunch, kBrief},
      {"checkpoint.manifest", kWorker, kOnlyKill, 1, Needs::kLaunch, kBrief},
      {"checkpoint.renamed", kWorker, kOnlyKill, 1, Needs::kLaunch, kBrief},
      {"result.rename", kWorker, kOnlyKill, 1, Needs::kLaunch, kBrief},
      {"result.renamed", kWorker, kOnlyKill, 1, Needs::kLaunch, kBrief},
  };
  return points;
}

const Point* FindPoint(const std::string& name) {
  const auto found = std::find_if(Points().begin(), Points().end(),
                                  [&](const Point& point) { return point.name == name; });
  return found == Points().end() ? nullptr : &*found;
}

bool IsSlow(const Point& point) { return point.patience == kSlow; }

std::string Setting(const Point& point, std::mt19937& random) {
  const std::vector<std::string> actions = absl::StrSplit(point.actions, ' ');
  const std::string& action = actions[random() % actions.size()];
  return absl::StrCat(point.name, "=", action, "@",
                      1 + random() % static_cast<unsigned>(point.most));
}

const Point& Choose(const std::map<std::string, int64_t>& hits, std::mt19937& random) {
  const auto of = [&](const Point& point) {
    const auto found = hits.find(point.name);
    return found == hits.end() ? int64_t{0} : found->second;
  };
  std::vector<const Point*> among;
  if (random() % 2 == 0) {
    int64_t least = INT64_MAX;
    for (const Point& point : Points()) least = std::min(least, of(point));
    for (const Point& point : Points())
      if (least < kEnough && of(point) <= least + 1 && (!IsSlow(point) || random() % 4 == 0))
        among.push_back(&point);
    if (!among.empty()) return *among[random() % among.size()];
  }
  for (const Point& point : Points())
    if (!IsSlow(point) || random() % 8 == 0) among.push_back(&point);
  return *among[random() % among.size()];
}

}  // namespace snug::crash
