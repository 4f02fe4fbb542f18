// The failpoints that the harness lets act (server/failpoint.h): in which program each is, what may
// be done there, and what has to be done to come there.
#ifndef TESTS_FAULT_CRASH_POINTS_H_
#define TESTS_FAULT_CRASH_POINTS_H_

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace snug::crash {

enum class Where : uint8_t { kDaemon, kRestore, kShim, kWorker };

// Beside submits, cancels, pauses, resumes and deletions, which there always are.
enum class Needs : uint8_t {
  kNothing,
  kLaunch,        // A worker is dead when the daemon starts: its job begins another attempt.
  kStaleFolder,   // That, and a folder of an epoch that has not been given out.
  kLauncher,      // That, and a launcher of its own.
  kLoudWorker,    // That, and a worker that prints more than a log takes.
  kMovedFolder,   // A deletion that has come as far as the trash.
  kUpload,        // Files that are sent,
  kFileDeletion,  // and deleted.
  kBackup,        // Copies of the store.
  kFullAuditLog,  // An audit log as large as it gets.
  kFreshDataset,  // A dataset that is not prepared.
};

struct Point {
  const char* name;
  Where where;
  const char* actions;  // Words, one of which is done there.
  int most = 1;         // It acts at a random one of so many times that it is come to.
  Needs needs = Needs::kNothing;
  absl::Duration patience = absl::Milliseconds(400);  // That it may take to come there.
};

const std::vector<Point>& Points();
const Point* FindPoint(const std::string& name);

// It is come to a second after a start, or after a second of work.
bool IsSlow(const Point& point);

// A setting of SNUG_FAILPOINT for the point.
std::string Setting(const Point& point, std::mt19937& random);

// One of the points: every other time one of those that have been hit the least, until each has
// been hit often enough, else any. Slow ones are chosen less often, as most lives would else wait
// for those that a slow machine seldom comes to.
const Point& Choose(const std::map<std::string, int64_t>& hits, std::mt19937& random);

}  // namespace snug::crash

#endif  // TESTS_FAULT_CRASH_POINTS_H_
