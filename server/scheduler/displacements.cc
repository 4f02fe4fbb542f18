#include "server/scheduler/displacements.h"

#include "absl/strings/str_cat.h"
#include "server/job/log.h"
#include "server/place/device_kinds.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/reports.h"
#include "server/scheduler/step_correction.h"

namespace snug::server {
namespace {

// The attempt, as neighbours know it.
std::string TellsApart(const Entry& entry) {
  return absl::StrCat(entry.key(), " ", entry.attempt->record.epoch);
}

}  // namespace

void Displacer::OnStep(Entry& entry, double ratio) const {
  if (!IsAtWork(entry)) return;
  Interference& interference = entry.attempt->interference;
  const int bore = interference.bears();
  if (interference.OnStep({.ratio = ratio, .at = SinceBoot()}, CompanyOf(entry),
                          core_.settings.limits.interference_after, entry.record.job)) {
    core_.nobody_leaves_until[entry.attempt->record.device] = interference.keeps_off_until();
    spdlog::info("job {}: is as slow as before its neighbour has left", entry.key());
  }
  if (interference.bears() != bore) core_.needs_round = true;  // Who was kept off may come again.
  if (!interference.too_slow() || IsInVain(entry)) return;
  if (Entry* const last = LastBehind(entry)) MakeLeave(*last, entry);
}

std::string Displacer::ReasonAtWork(const Entry& entry) const {
  const v1::Job& job = entry.record.job;
  if (job.displacement().pending()) return LeavingReason(job);
  const Interference& interference = entry.attempt->interference;
  if (!interference.too_slow()) return kIsTraining;
  return absl::StrCat(kIsTraining, " in ", SlownessOf(job), ": ",
                      IsInVain(entry) ? "a job has left the device of late, which did not help"
                                      : "its neighbours are ahead of it in line, or end soon");
}

bool Displacer::IsAtWork(const Entry& entry) const {
  const LiveAttempt& attempt = *entry.attempt;
  return entry.state() == v1::Job::STATE_RUNNING && attempt.reported && !attempt.end.begun() &&
         !core_.board.MovesOff(entry);
}

Company Displacer::CompanyOf(const Entry& entry) const {
  const AttemptRecord& own = entry.attempt->record;
  const Device* const device = core_.ledger.Find(own.device);
  if (device == nullptr) return {.others = true};  // Nobody knows who else is there.
  Company company;
  int jobs = 1, threads = own.plan.threads();
  core_.EachAttended([&](const Entry& other) {
    const AttemptRecord& attempt = other.attempt->record;
    if (&other == &entry || attempt.device != own.device || !IsAtWork(other)) return;
    company.neighbours.push_back(TellsApart(other));
    ++jobs;
    threads += attempt.plan.threads();
  });
  company.others = core_.ledger.JobsOn(own.device) != jobs;
  company.fair_share = FairShareOf(device->is_gpu(), jobs, threads, device->threads);
  company.predictable = device->is_gpu() && IsMeasured(*device);
  return company;
}

bool Displacer::IsInVain(const Entry& entry) const {
  const auto until = core_.nobody_leaves_until.find(entry.attempt->record.device);
  return until != core_.nobody_leaves_until.end() && SinceBoot() < until->second;
}

Entry* Displacer::LastBehind(const Entry& entry) const {
  const absl::Duration soon = core_.settings.limits.interference_after;
  const Entry* last = &entry;
  core_.EachAttended([&](const Entry& other) {
    if (other.attempt->record.device != entry.attempt->record.device || !IsAtWork(other)) return;
    if (LeftUntilEnd(other.record.job) < soon) return;
    if (PlaceInLine(last->record) < PlaceInLine(other.record)) last = &other;
  });
  return last == &entry ? nullptr : core_.Find(last->key());
}

// One at a time: while it ends, nobody's steps there say anything.
void Displacer::MakeLeave(Entry& neighbour, Entry& slowed) const {
  const std::string reason = WhyItLeaves(neighbour.record.job, slowed.record.job);
  const absl::Status stored = core_.Apply(neighbour, Displaced{reason}).status();
  if (!stored.ok()) {
    slowed.attempt->interference.Forget();
    return spdlog::error("job {}: {}", neighbour.key(), stored.message());
  }
  slowed.attempt->interference.OnDeparture(TellsApart(neighbour), SinceBoot(),
                                           core_.settings.limits.keep_off);
  core_.metrics.Displaced(slowed.record.job.device());
  spdlog::info("job {}: leaves {}: slows job {}, which takes {}", neighbour.key(),
               slowed.record.job.device(), slowed.key(), SlownessOf(slowed.record.job));
}

}  // namespace snug::server
