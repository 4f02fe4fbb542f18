#include "server/plan/plan_cache.h"

#include <algorithm>
#include <utility>

#include "proto/snug/status_macros.h"

namespace snug::server {
namespace {

bool SameRows(const program::LengthCounts& a, const program::LengthCounts& b) {
  return a.rows == b.rows && a.tokens == b.tokens && a.rows_of == b.rows_of;
}

bool SameLengths(const RowLengths& a, const RowLengths& b) {
  return SameRows(a.train, b.train) && SameRows(a.eval, b.eval) &&
         SameRows(a.train_sources, b.train_sources) && SameRows(a.eval_sources, b.eval_sources) &&
         a.longest_prompt == b.longest_prompt;
}

bool SameList(const program::PlanList& a, const program::PlanList& b) {
  return a.recompute_plans == b.recompute_plans && a.most_mixes == b.most_mixes &&
         a.limits == b.limits;
}

std::string WithoutNames(v1::JobSpec spec) {
  spec.clear_display_name();
  spec.clear_labels();
  spec.clear_priority();
  spec.clear_webhook();
  spec.mutable_training()->clear_learning_rate();
  spec.mutable_training()->clear_seed();
  return spec.SerializeAsString();
}

}  // namespace

bool PlanCache::Alike(const Question& a, const Question& b) {
  return a.spec == b.spec && a.machine == b.machine && SameList(a.list, b.list) &&
         SameLengths(a.lengths, b.lengths) && a.config == b.config;
}

int64_t PlanCache::hits() const {
  absl::MutexLock lock(&mutex_);
  return hits_;
}

absl::StatusOr<std::vector<v1::Plan>> PlanCache::PlansFor(const program::Program& program,
                                                          const v1::JobSpec& spec,
                                                          const RowLengths& lengths,
                                                          const PlanMachine& machine,
                                                          const program::PlanList& list) {
  Answer made{.question = {.spec = WithoutNames(spec),
                           .config = program.config,
                           .lengths = lengths,
                           .machine = machine,
                           .list = list}};
  {
    absl::MutexLock lock(&mutex_);
    const auto known = std::find_if(answers_.begin(), answers_.end(), [&](const Answer& answer) {
      return Alike(answer.question, made.question);
    });
    if (known != answers_.end()) {
      ++hits_;
      answers_.splice(answers_.begin(), answers_, known);
      return known->plans;
    }
  }
  ASSIGN_OR_RETURN(made.plans, server::PlansFor(program, spec, lengths, machine, list));
  made.bytes = made.question.spec.size();
  for (const v1::Plan& plan : made.plans) made.bytes += plan.SpaceUsedLong();
  absl::MutexLock lock(&mutex_);
  bytes_ += made.bytes;
  answers_.push_front(std::move(made));
  const std::vector<v1::Plan> plans = answers_.front().plans;
  while (bytes_ > max_bytes_) {
    bytes_ -= answers_.back().bytes;
    answers_.pop_back();
  }
  return plans;
}

}  // namespace snug::server
