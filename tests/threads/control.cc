// Shows that ./check --threads finds what it is there to find: two threads that write one number,
// ordered in the way that is named on the command line.
//
//   race      by nothing: a report
//   half      by an Abseil lock that one of them does not take: a report
//   mutex     by an Abseil lock
//   await     by an Abseil lock whose condition the other makes true
//   standard  by a lock of the standard library
//   status    by the count of an Abseil status's holders, the last of which frees it
#include <cstring>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace {

constexpr int kTimes = 1000;

int number = 0;
bool written = false;
absl::Mutex lock;
std::mutex standard_lock;

template <typename First, typename Second>
void Run(const First& first, const Second& second) {
  std::thread one([&] { first(); }), two([&] { second(); });
  one.join();
  two.join();
}

void Write() {
  for (int i = 0; i < kTimes; ++i) ++number;
}

void WriteLocked() {
  const absl::MutexLock hold(&lock);
  Write();
}

void WriteAndTell() {
  const absl::MutexLock hold(&lock);
  Write();
  written = true;
}

void WriteOnceTold() {
  const absl::MutexLock hold(&lock);
  lock.Await(absl::Condition(&written));
  Write();
}

void WriteInStandardLock() {
  const std::lock_guard<std::mutex> hold(standard_lock);
  Write();
}

// Each takes a copy more of one status and drops its own; one of them frees what both held.
void DropOneStatus() {
  for (int i = 0; i < kTimes; ++i) {
    absl::Status one = absl::NotFoundError("it is not there"), two = one;
    const auto drop = [](absl::Status& held) {
      return [&held] {
        const absl::Status copy = held;
        held = absl::OkStatus();
      };
    };
    Run(drop(one), drop(two));
  }
  number = kTimes;
}

}  // namespace

int main(int count, char** words) {
  const std::string order = count == 2 ? words[1] : "";
  if (order == "race") {
    Run(Write, Write);
  } else if (order == "half") {
    Run(WriteLocked, Write);
  } else if (order == "mutex") {
    Run(WriteLocked, WriteLocked);
  } else if (order == "await") {
    Run(WriteAndTell, WriteOnceTold);
  } else if (order == "standard") {
    Run(WriteInStandardLock, WriteInStandardLock);
  } else if (order == "status") {
    DropOneStatus();
  } else {
    std::cerr << "what is \"" << order << "\"?\n";
    return 2;
  }
  return number > 0 ? 0 : 1;
}
