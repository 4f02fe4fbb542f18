#include "tests/fault/crash/totals.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/fault/crash/points.h"

namespace snug::crash {
namespace {

constexpr int64_t kBetweenLines = 1000;  // Cycles.

void PrintCounts(const char* of, const std::map<std::string, int64_t>& counts) {
  printf("%s:", of);
  for (const auto& [name, count] : counts)
    printf(" %s %lld", name.c_str(), static_cast<long long>(count));
  printf("\n");
}

}  // namespace

void Totals::PrintProgress() const {
  printf("%lld of %lld cycles count after %.0f s\n", static_cast<long long>(sum_.counted),
         static_cast<long long>(sum_.cycles), absl::ToDoubleSeconds(sum_.took));
  fflush(stdout);
}

bool Totals::Enough() const {
  absl::MutexLock lock(&mutex_);
  return IsEnough();
}

void Totals::Begin() {
  absl::MutexLock lock(&mutex_);
  began_ = std::min(began_, absl::Now());
}

void Totals::Add(const Life& life) {
  absl::MutexLock lock(&mutex_);
  if (IsEnough()) return;
  sum_.took = absl::Now() - began_;
  ++sum_.cycles;
  sum_.running += life.running;
  sum_.unacknowledged += life.unacknowledged;
  const bool counts = life.running && life.unacknowledged;
  sum_.counted += counts;
  if (counts && sum_.counted % kBetweenLines == 0) PrintProgress();
  if (!life.killed.empty()) ++sum_.killed[life.killed];
}

void Totals::Blame(const Violation& violation, const std::string& where) {
  absl::MutexLock lock(&mutex_);
  ++(violation.kind == Wrong::kLost      ? sum_.lost
     : violation.kind == Wrong::kDoubled ? sum_.doubled
                                         : sum_.violations);
  sum_.what.push_back(absl::StrCat(violation.what, "; all of it is in ", where));
}

void Totals::SetHits(int daemon, std::map<std::string, int64_t> hits) {
  absl::MutexLock lock(&mutex_);
  hits_[daemon] = std::move(hits);
}

std::map<std::string, int64_t> Totals::SumOfHits() const {
  std::map<std::string, int64_t> sum;
  for (const auto& [daemon, hits] : hits_)
    for (const auto& [name, count] : hits) sum[name] += count;
  return sum;
}

std::map<std::string, int64_t> Totals::Hits() const {
  absl::MutexLock lock(&mutex_);
  return SumOfHits();
}

void Totals::AddEnd(const std::string& state) {
  absl::MutexLock lock(&mutex_);
  ++sum_.ends[state];
}

void Totals::AddJobs(int64_t jobs) {
  absl::MutexLock lock(&mutex_);
  sum_.jobs += jobs;
}

void Totals::AddOutput() {
  absl::MutexLock lock(&mutex_);
  ++sum_.outputs;
}

Summary Totals::Sum() const {
  absl::MutexLock lock(&mutex_);
  Summary sum = sum_;
  sum.hits = SumOfHits();
  return sum;
}

bool Report(const Summary& summary, int64_t wanted, int64_t each_hit) {
  bool good = summary.what.empty() && summary.counted >= wanted;
  printf("%-24s %s\n", "failpoint", "hits");
  for (const Point& point : Points()) {
    const auto found = summary.hits.find(point.name);
    const int64_t hits = found == summary.hits.end() ? 0 : found->second;
    const bool few = hits < std::max<int64_t>(each_hit, 1);
    printf("%-24s %lld%s\n", point.name, static_cast<long long>(hits), few ? "  too few" : "");
    good &= hits >= each_hit;
  }
  PrintCounts("killed at random moments", summary.killed);
  PrintCounts("jobs at the end", summary.ends);
  const double seconds = absl::ToDoubleSeconds(summary.took);
  printf(
      "%lld cycles in %.1f s, %.1f a second: %lld with a running attempt, %lld with an "
      "unacknowledged submit, %lld with both, which count\n",
      static_cast<long long>(summary.cycles), seconds,
      static_cast<double>(summary.cycles) / seconds, static_cast<long long>(summary.running),
      static_cast<long long>(summary.unacknowledged), static_cast<long long>(summary.counted));
  printf("%lld jobs, %lld outputs compared, %lld lost, %lld doubled, %lld other violations\n",
         static_cast<long long>(summary.jobs), static_cast<long long>(summary.outputs),
         static_cast<long long>(summary.lost), static_cast<long long>(summary.doubled),
         static_cast<long long>(summary.violations));
  for (const std::string& what : summary.what) printf("VIOLATION: %s\n", what.c_str());
  fflush(stdout);
  return good;
}

}  // namespace snug::crash
