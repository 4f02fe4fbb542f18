#include "server/scheduler/attempts.h"

#include <signal.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/log.h"
#include "server/node/attempt_files.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/core.h"
#include "server/scheduler/displacements.h"
#include "server/scheduler/drift.h"
#include "server/scheduler/plan_changes.h"
#include "server/scheduler/reports.h"

namespace snug::server {
namespace {

constexpr absl::Duration kBetweenRefusals = absl::Seconds(1);  // In the log: anybody may dial.

std::string NameOfEvent(const v1::WorkerEvent& event) {
  return absl::StrCat("message ", static_cast<int>(event.event_case()));
}

void SignalWorker(const Entry& entry, int signal) {
  const absl::Status sent = entry.attempt->processes->SignalWorker(signal);
  if (!sent.ok()) spdlog::warn("job {}: signal {}: {}", entry.key(), signal, sent.message());
}

void SignalShim(const Entry& entry, int signal) {
  const absl::Status sent = entry.attempt->processes->SignalShim(signal);
  if (!sent.ok()) spdlog::warn("job {}: signal {}: {}", entry.key(), signal, sent.message());
}

void LogError(const Entry& entry, const absl::Status& status) {
  if (!status.ok()) spdlog::error("job {}: {}", entry.key(), status.message());
}

AttemptSigns SignsOf(const Entry& entry, absl::Duration now, const SchedulerLimits& limits) {
  const LiveAttempt& attempt = *entry.attempt;
  const bool kept = entry.record.job.keep();
  const PaceLimits pace = {.shortest = limits.stuck_after,
                           .other_work = limits.other_work,
                           .other_work_in_all = limits.other_work_in_all,
                           .exports = kept};
  return {.liveness = attempt.processes->Look(),
          .cancelled = entry.state() == v1::Job::STATE_CANCELLING && !kept,
          .linked = attempt.link != 0,
          .greeted = attempt.record.state != AttemptState::kIntent &&
                     attempt.record.state != AttemptState::kSpawned,
          .hangs = attempt.pace.Overdue(entry.record.job.spec(), pace, now) > absl::ZeroDuration(),
          .bad_messages = attempt.bad_messages,
          .age = now - attempt.started,
          .silent = now - attempt.last_heard};
}

}  // namespace

absl::Status Attempts::Listen() {
  WorkerLink::Handlers handlers;
  handlers.on_events = [this](ConnectionId link) {
    core_.Post([this, link] {
      for (v1::WorkerEvent& event : link_->Take(link)) OnEvent(link, std::move(event));
    });
  };
  handlers.on_closed = [this](ConnectionId link, const absl::Status& why, WorkerLink::Events rest) {
    core_.Post([this, link, why, rest = std::move(rest)] {
      for (const v1::WorkerEvent& event : rest) OnEvent(link, event);
      OnClosed(link, why);
    });
  };
  ASSIGN_OR_RETURN(link_, core_.settings.node->Listen(std::move(handlers)));
  return absl::OkStatus();
}

void Attempts::Adopt(Entry& entry, AttemptRecord record) {
  const absl::Duration now = SinceBoot();
  entry.attempt = std::make_unique<LiveAttempt>();
  LiveAttempt& attempt = *entry.attempt;
  attempt.record = std::move(record);
  attempt.started = attempt.last_heard = now;
  attempt.processes =
      core_.settings.node->Adopt(entry.key(), attempt.record.epoch, attempt.record.shim_pid);
  attempt.pace.Begin(now);
  core_.attended.insert(entry.key());
  core_.board.ShowPlace(entry);
}

void Attempts::LookAfterAll() {
  const std::vector<std::string> attended(core_.attended.begin(), core_.attended.end());
  for (const std::string& id : attended) {
    Entry* entry = core_.Find(id);
    if (entry != nullptr && entry->attempt != nullptr)
      LookAfter(*entry);
    else
      core_.attended.erase(id);
  }
}

// Of workers that this process did not listen to.
void Attempts::ForgiveSilence(absl::Duration away) {
  const absl::Duration now = SinceBoot();
  spdlog::warn("away for {} s", absl::ToInt64Seconds(away));
  core_.EachAttended([&](Entry& entry) {
    entry.attempt->last_heard = now;
    entry.attempt->started += away;
    entry.attempt->pace.Begin(now);
  });
}

void Attempts::Send(const Entry& entry, const v1::WorkerCommand& command) {
  if (entry.attempt->link != 0) link_->Send(entry.attempt->link, command);
}

void Attempts::CloseLink(Entry& entry) {
  if (entry.attempt->link != 0) link_->Close(entry.attempt->link);
}

void Attempts::LookAfter(Entry& entry) {
  LiveAttempt& attempt = *entry.attempt;
  if (attempt.end.stage == AttemptEnd::Stage::kClosing) return;
  const absl::Duration now = SinceBoot();
  if (attempt.interference.Lapse(now)) core_.needs_round = true;
  const AttemptSigns signs = SignsOf(entry, now, core_.settings.limits);
  const Care care = CareFor(signs, now, core_.settings.limits, attempt.end);
  if (care.fault != nullptr) core_.metrics.WorkerEnded(care.fault);
  if (care.tell) {
    spdlog::info("job {}: ending attempt {}", entry.key(), attempt.record.epoch);
    TellToStop(entry);
  }
  if (care.term) {
    SignalWorker(entry, SIGTERM);
    SignalWorker(entry, SIGCONT);  // Neither hears anything while it is stopped.
    SignalShim(entry, SIGCONT);
  }
  if (care.kill) SignalWorker(entry, SIGKILL);
  if (care.kill_shim) SignalShim(entry, SIGKILL);
  // Its GPU, or who else is on it, may be what ended it: that is looked at first.
  if (care.gone) core_.board.Forget(entry.record.job.device());
  if (care.close && !core_.board.AwaitsLook()) core_.closing.Begin(entry);
  if (attempt.end.begun() || signs.liveness == Liveness::kUnknown) return;
  if (care.unreachable && attempt.record.state == AttemptState::kLive)
    LogError(entry, core_.Apply(entry, FellSilent{signs.silent}).status());
  if (attempt.link != 0 && now - attempt.seen > core_.settings.limits.measure_gpus)
    core_.board.NoteProcessBytes(entry);
  if (now - entry.last_saved > core_.settings.limits.save_progress) core_.SaveProgress(entry);
}

void Attempts::TellToStop(const Entry& entry) {
  v1::WorkerCommand command;
  const bool goes_on_later = entry.state() == v1::Job::STATE_PAUSING || core_.board.MovesOff(entry);
  command.mutable_stop()->set_checkpoint(goes_on_later);
  command.mutable_stop()->set_keep(entry.record.job.keep());
  Send(entry, command);
}

void Attempts::TellOfPlan(const Entry& entry) {
  v1::WorkerCommand command;
  *command.mutable_change_plan() = entry.record.job.plan_changes().pending();
  Send(entry, command);
}

void Attempts::OnEvent(ConnectionId link, v1::WorkerEvent event) {
  if (event.has_hello()) return OnHello(link, event.hello());
  const auto known = links_.find(link);
  Entry* entry = known == links_.end() ? nullptr : core_.Find(known->second);
  if (entry == nullptr || entry->attempt == nullptr || entry->attempt->link != link)
    return Refuse(link, absl::StrCat(NameOfEvent(event), " before Hello"));
  LiveAttempt& attempt = *entry->attempt;
  attempt.last_heard = SinceBoot();
  core_.metrics.Heard(entry->key(), absl::FromUnixMicros(WallMicros()));
  if (attempt.record.state == AttemptState::kUnreachable)
    LogError(*entry, core_.Apply(*entry, Heard{.reported = attempt.reported}).status());
  const int looks = entry->record.job.memory().looks_size();
  if (event.has_step()) OnStep(*entry, event.step());
  // A look is judged as it comes: later, and of what Hello repeats, nobody knows who was there.
  if (entry->record.job.memory().looks_size() > looks) core_.board.NoteLook(*entry);
  if (event.has_checkpoint()) OnCheckpoint(*entry, event.checkpoint());
  if (event.has_plan_changed()) PlanChanger(core_).OnAnswer(*entry, event.plan_changed());
  if (event.has_shortage()) PlanChanger(core_).OnShortage(*entry, event.shortage());
  if (event.has_heartbeat()) attempt.pace.OnHeartbeat(event.heartbeat(), SinceBoot());
  // Finished: the exit record says it too, and that one cannot get lost.
}

void Attempts::OnClosed(ConnectionId link, const absl::Status& why) {
  const auto known = links_.find(link);
  Entry* entry = known == links_.end() ? nullptr : core_.Find(known->second);
  if (entry != nullptr && entry->attempt != nullptr && entry->attempt->link == link) {
    entry->attempt->link = 0;
    if (absl::IsInvalidArgument(why)) OnBadMessage(*entry, why.message());
  } else if (absl::IsInvalidArgument(why)) {
    core_.metrics.LinkError();
  }
  if (known != links_.end()) links_.erase(known);
}

void Attempts::Refuse(ConnectionId link, std::string reason) {
  core_.metrics.LinkError();
  if (const absl::Duration now = SinceBoot(); now - refusal_told_ > kBetweenRefusals) {
    refusal_told_ = now;
    spdlog::warn("a worker's connection is refused: {}", reason);
  }
  v1::WorkerCommand command;
  command.mutable_refused()->set_reason(std::move(reason));
  link_->Send(link, command);
  link_->Close(link);
}

void Attempts::OnHello(ConnectionId link, const v1::WorkerEvent::Hello& hello) {
  Entry* entry = core_.Find(hello.job_id());
  if (entry == nullptr || entry->attempt == nullptr ||
      entry->attempt->end.stage == AttemptEnd::Stage::kClosing)
    return Refuse(link, absl::StrCat("job ", hello.job_id(), " has no live attempt"));
  LiveAttempt& attempt = *entry->attempt;
  if (hello.epoch() != attempt.record.epoch || hello.nonce() != attempt.record.nonce)
    return Refuse(link, absl::StrCat("epoch ", hello.epoch(), " of job ", hello.job_id(),
                                     " is not its live attempt"));
  if (attempt.link != 0 && attempt.link != link) link_->Close(attempt.link);
  attempt.link = link;
  attempt.last_heard = SinceBoot();
  links_[link] = entry->key();
  if (attempt.record.state != AttemptState::kLive) attempt.pace.Begin(SinceBoot());
  const Heard heard{.pid = hello.pid(), .reported = hello.has_last() || attempt.reported};
  if (const absl::Status status = core_.Apply(*entry, heard).status(); !status.ok()) {
    // Not stored, so not welcomed: the worker dials again.
    spdlog::error("job {}: {}", entry->key(), status.message());
    return link_->Close(link);
  }
  core_.metrics.Heard(entry->key(), absl::FromUnixMicros(WallMicros()));
  link_->Welcome(link);
  v1::WorkerCommand welcome;
  welcome.mutable_welcome();
  link_->Send(link, welcome);
  attempt.changes_plans = hello.has_plan();
  if (hello.has_last()) OnStep(*entry, hello.last());
  if (hello.has_plan()) PlanChanger(core_).OnAnswer(*entry, hello.plan());
  if (hello.has_shortage()) PlanChanger(core_).OnShortage(*entry, hello.shortage());
  const bool stops = entry->state() == v1::Job::STATE_PAUSING || entry->record.job.keep();
  if (stops || core_.board.MovesOff(*entry) || attempt.end.begun()) TellToStop(*entry);
}

void Attempts::OnStep(Entry& entry, const v1::WorkerEvent::Step& step) {
  v1::Job& job = entry.record.job;
  LiveAttempt& attempt = *entry.attempt;
  const v1::Progress before = job.progress();
  const std::string wrong = WrongWith(step, attempt.last_step, MaxSteps(entry.record.job));
  if (!wrong.empty()) return OnBadMessage(entry, wrong);
  const bool end_was_known = LeftUntilEnd(job) < absl::InfiniteDuration();
  v1::Progress& now = *job.mutable_progress();
  now = step.progress();
  if (!std::exchange(attempt.reported, true))
    core_.needs_round = true;  // It can be squeezed from now on.
  attempt.pace.OnStep(entry.record.job.spec(), now, SinceBoot());
  attempt.last_step = now.global_step();
  if (now.max_steps() == 0) now.set_max_steps(before.max_steps());
  const Displacer displacer(core_);
  if (const auto ratio = attempt.correction.OnStep(attempt.record.resume_step, job))
    displacer.OnStep(entry, *ratio);
  if (entry.state() == v1::Job::STATE_RUNNING) job.set_reason(displacer.ReasonAtWork(entry));
  if (!end_was_known && LeftUntilEnd(job) < absl::InfiniteDuration())
    core_.needs_round = true;  // Jobs may go past one that waits for this one's end.
  if (!now.has_eval_loss() && before.has_eval_loss()) {
    now.set_eval_loss(before.eval_loss());
    *now.mutable_eval_metrics() = before.eval_metrics();
  }
  v1::JobMemory& memory = *job.mutable_memory();
  memory.set_measured_peak_bytes(
      std::max(memory.measured_peak_bytes(), step.measured_peak_bytes()));
  *memory.mutable_looks() = step.looks();
  const std::string drifted = NoteDrift(step, job);
  Count(entry, now);
  core_.Show(entry);
  core_.board.Show();
  if (!drifted.empty()) Pause(entry, drifted);
}

// What cannot be stored is asked again with the next report, which tells of the same.
void Attempts::Pause(Entry& entry, const std::string& cause) {
  if (entry.state() != v1::Job::STATE_RUNNING || entry.attempt->end.begun()) return;
  spdlog::warn("job {}: is paused: {}", entry.key(), cause);
  const absl::Status paused = core_.Apply(entry, PauseAsked{cause}).status();
  if (!paused.ok()) entry.record.job.clear_drift();
  LogError(entry, paused);
}

void Attempts::Count(Entry& entry, const v1::Progress& now) {
  // What a job's parent has trained was counted as that one's.
  if (now.global_step() == entry.record.job.extends_step())
    entry.counted_tokens = std::max(entry.counted_tokens, now.num_tokens());
  core_.metrics.Steps(entry.record.job.device(), now.global_step() - entry.counted_steps,
                      now.num_tokens() - entry.counted_tokens, now.step_seconds());
  entry.counted_steps = std::max(entry.counted_steps, now.global_step());
  entry.counted_tokens = std::max(entry.counted_tokens, now.num_tokens());
}

void Attempts::OnBadMessage(Entry& entry, absl::string_view what) {
  LiveAttempt& attempt = *entry.attempt;
  ++attempt.bad_messages;
  core_.metrics.LinkError();
  spdlog::warn("job {}: its worker sent {}; {} of {} such messages", entry.key(), what,
               attempt.bad_messages, core_.settings.limits.max_bad_messages);
  if (attempt.link == 0) return;
  link_->Close(attempt.link);
  attempt.link = 0;
}

void Attempts::OnCheckpoint(Entry& entry, const v1::WorkerEvent::Checkpoint& checkpoint) {
  const std::filesystem::path path = checkpoint.path();
  const auto name = ParseCheckpointName(path.filename().string());
  const std::string folder = CheckpointsDir(core_.settings.state_dir, entry.key());
  if (path.parent_path() != folder || !name || name->epoch != entry.attempt->record.epoch)
    return OnBadMessage(entry, absl::StrCat("a checkpoint at ", checkpoint.path()));
  entry.attempt->pace.OnCheckpoint(SinceBoot());
  core_.pool.Post([this, id = entry.key(), checkpoint] {
    auto record =
        std::make_shared<absl::StatusOr<CheckpointRecord>>(VerifyCheckpoint(id, checkpoint.path()));
    core_.Post([this, id, record, checkpoint] {
      Entry* entry = core_.Find(id);
      if (entry == nullptr) return;
      absl::Status status = record->status();
      if (status.ok() && (*record)->manifest_sha256 != checkpoint.manifest_sha256())
        status = absl::DataLossError("its manifest is not the one that the worker wrote");
      if (status.ok()) status = core_.store.Commit({.checkpoints = {**record}});
      // Not adopted now: when the attempt ends, the folder is looked at again.
      if (!status.ok())
        spdlog::warn("job {}: checkpoint {}: {}", id, checkpoint.path(), status.message());
    });
  });
}

}  // namespace snug::server
