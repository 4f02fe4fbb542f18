#include "server/scheduler/readiness.h"

#include <utility>

#include "server/job/transient.h"

namespace snug::server {

bool Readiness::IsDue(absl::Duration now) const {
  return state_ == State::kAwaited || (state_ == State::kHeld && now >= again_);
}

Readiness::Abandoned Readiness::Begin() {
  run_ = std::make_shared<std::atomic<bool>>(false);
  state_ = State::kUnderWay;
  return run_;
}

absl::Duration Readiness::Hold(absl::Duration now) {
  if (held_ == 0) held_since_ = now;
  const absl::Duration pause = HoldFor(held_++);
  again_ = now + pause;
  run_.reset();
  state_ = State::kHeld;
  return pause;
}

void Readiness::TryAgain(absl::Duration now) {
  again_ = now + HoldFor(0);
  run_.reset();
  held_ = 0;
  state_ = State::kHeld;
}

void Readiness::Withdraw() {
  if (run_ != nullptr) run_->store(true);
  run_.reset();
  state_ = State::kAwaited;
}

absl::Duration Readiness::HeldFor(absl::Duration now) const {
  return held_ == 0 ? absl::ZeroDuration() : now - held_since_;
}

void Readiness::Finish(SharedReady job, std::optional<CheckpointRecord> resume) {
  job_ = std::move(job);
  resume_ = std::move(resume);
  run_.reset();
  held_ = 0;
  state_ = State::kReady;
}

void Readiness::Reset() {
  Withdraw();
  job_.reset();
  resume_.reset();
  held_ = 0;
}

}  // namespace snug::server
