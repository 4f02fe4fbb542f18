#include "server/examine/examiner.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "server/job/log.h"

namespace snug::server {
namespace {

// Of the time, a tenth is work: the rest is for those who wait for the store and the disk.
constexpr int kRestPerWork = 9;
constexpr absl::Duration kLongestRest = absl::Seconds(5);

// By check.
std::map<std::string, int64_t> Log(const v1::CheckStoreResponse& examined) {
  std::map<std::string, int64_t> findings;
  for (const std::string& check : examined.checks()) findings[check] = 0;
  for (const v1::CheckStoreResponse::Finding& finding : examined.findings()) {
    spdlog::error("{}: {}: {}", finding.check(), finding.subject(), finding.message());
    ++findings[finding.check()];
  }
  return findings;
}

}  // namespace

void ExamineAtStart(JobStore& store, const Premises& premises, Metrics& metrics) {
  const absl::StatusOr<v1::CheckStoreResponse> examined = ExamineLive(store, premises);
  if (!examined.ok())
    return spdlog::error("the store is not examined: {}", examined.status().message());
  // The whole has not been examined yet: no time is told.
  metrics.Examined(absl::UnixEpoch(), Log(*examined));
}

Examiner::Examiner(JobStore& store, Premises premises, Metrics& metrics, absl::Duration pause)
    : store_(store),
      premises_(std::move(premises)),
      metrics_(metrics),
      pause_(pause),
      thread_([this] { Loop(); }) {}

Examiner::~Examiner() {
  stop_.Notify();
  thread_.join();
}

void Examiner::Loop() {
  while (!stop_.WaitForNotificationWithTimeout(pause_)) ExamineOnce();
}

void Examiner::ExamineOnce() {
  const absl::StatusOr<v1::CheckStoreResponse> examined =
      Examine(store_, premises_, [this](absl::Duration took) {
        return !stop_.WaitForNotificationWithTimeout(std::min(took * kRestPerWork, kLongestRest));
      });
  if (absl::IsCancelled(examined.status())) return;
  if (!examined.ok())
    return spdlog::error("the store is not examined: {}", examined.status().message());
  metrics_.Examined(absl::Now(), Log(*examined));
}

}  // namespace snug::server
