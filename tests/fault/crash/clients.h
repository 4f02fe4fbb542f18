// Those who ask a daemon during one of its lives, from threads of their own, until it is over: two
// submit without a pause as long as there is room, one changes jobs, one sends files and takes
// backups where the life's failpoint wants that, and now and then where not.
#ifndef TESTS_FAULT_CRASH_CLIENTS_H_
#define TESTS_FAULT_CRASH_CLIENTS_H_

#include <atomic>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/fault/crash/kept_files.h"
#include "tests/fault/crash/known_jobs.h"
#include "tests/fault/crash/points.h"

namespace snug::crash {

inline constexpr int kSteps = 12;  // Of a job.

class Clients {
 public:
  // All outlive it. `folder`: with the model and the dataset.
  Clients(v1::FineTuning::Stub& stub, KnownJobs& jobs, KeptFiles& files, std::string folder);
  ~Clients() { Join(); }

  // `calm`: a long life, of which one thing is awaited: they ask ten times as seldom.
  void Start(Needs needs, bool calm, uint32_t seed);
  // Until one more new job is on its way, or for so long.
  void Press(absl::Duration patience);
  // The life is over.
  void Join();
  // The first word that is not as it must be; empty: none.
  const std::string& wrong() const { return wrong_; }

  // One round of what the submitting threads do.
  void Submit(size_t most_live);

 private:
  v1::CreateJobRequest Request(int64_t token, bool steady);
  void Repeat(const std::function<void(std::mt19937&)>& act, uint32_t seed);
  void Change(std::mt19937& random);
  grpc::Status Ask(const Wish& wish, v1::Job& shown) const;
  void Operate(std::mt19937& random);

  v1::FineTuning::Stub& stub_;
  KnownJobs& jobs_;
  KeptFiles& files_;
  const std::string folder_;
  Needs needs_ = Needs::kNothing;
  int slower_ = 1;
  std::atomic<bool> over_ = false;
  std::atomic<bool> pressed_ = false;
  std::atomic<int> special_ = 0;  // New jobs of this life that are still to be what it needs.
  std::string wrong_;             // Of the thread that operates; read when it has been joined.
  std::vector<std::thread> threads_;
};

}  // namespace snug::crash

#endif  // TESTS_FAULT_CRASH_CLIENTS_H_
