// One daemon, those who ask it, and what is known of its jobs: life after life of it.
//
// A cycle: the daemon is started, with a failpoint or without; its word is compared with what is
// known (KnownJobs, KeptFiles, the examination of its store, outputs, the file in which a worker
// complains that it is not alone); then it is asked until it dies at its failpoint or is killed.
#ifndef TESTS_FAULT_CRASH_SIDE_H_
#define TESTS_FAULT_CRASH_SIDE_H_

#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/fault/crash/clients.h"
#include "tests/fault/crash/failing_daemon.h"
#include "tests/fault/crash/totals.h"

namespace snug::crash {

class Side {
 public:
  Side(Programs programs, Totals& totals, int number, uint32_t seed);

  // Cycles until there are enough; then lets the jobs come to their ends.
  void Run();

 private:
  // One job to its end, by which the dataset is prepared.
  bool Begin();
  bool Cycle();
  // What the point needs while there is no daemon. False: it cannot be had now.
  bool Arrange(const Point& point, const std::string& setting);
  void Watch(const Point* point);
  std::string KillSomebody();
  void LookAtExit(bool served, const std::string& setting);

  // False: the daemon has gone meanwhile.
  bool Compare();
  bool ListJobs(std::vector<v1::Job>& jobs);
  bool CheckStore();
  void CheckOutput(const v1::Job& job);

  void Finish();
  bool AllEnded(bool cancel_others);
  void LookAtWebhooks();
  void Blame(Violation violation);

  Totals& totals_;
  const int number_;
  std::mt19937 random_;
  FailingDaemon daemon_;
  KnownJobs jobs_;
  KeptFiles files_;
  std::set<std::string> compared_;  // Jobs whose outputs have been looked at.
};

}  // namespace snug::crash

#endif  // TESTS_FAULT_CRASH_SIDE_H_
