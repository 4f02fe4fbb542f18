#include "server/scheduler/reports.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/job/check_spec.h"
#include "worker/program/planning/memory_look.h"
#include "worker/program/stash.h"

namespace snug::server {
namespace {

constexpr int64_t kMaxBelievableBytes = int64_t{1} << 50;  // 1 PiB
constexpr int64_t kMaxBelievableTokens = int64_t{1} << 50;

bool IsFinite(const v1::Progress& now) {
  for (double value : {now.loss(), now.learning_rate(), now.grad_norm(), now.epoch(),
                       now.tokens_per_second(), now.step_seconds(), now.eval_loss()})
    if (!std::isfinite(value)) return false;
  for (const auto& [name, value] : now.eval_metrics())
    if (!std::isfinite(value)) return false;
  return true;
}

// A name of metrics.jsonl: what is shown of it is a label of a series and a word in a terminal.
bool IsMetricName(const std::string& name) {
  constexpr size_t kMaxBytes = 64;
  return name.size() <= kMaxBytes && std::all_of(name.begin(), name.end(), [](char c) {
           return c == '_' || absl::ascii_isalnum(static_cast<unsigned char>(c));
         });
}

// No task has as many.
constexpr int kMaxEvalMetrics = 16;

std::string WrongWithMetrics(const v1::Progress& now) {
  if (now.eval_metrics_size() > kMaxEvalMetrics)
    return absl::StrCat(now.eval_metrics_size(), " metrics of an evaluation, at most ",
                        kMaxEvalMetrics);
  for (const auto& [name, value] : now.eval_metrics())
    if (!IsMetricName(name)) return "a metric of no proper name";
  return "";
}

bool IsBelievablePeak(int64_t bytes) { return bytes >= 0 && bytes <= kMaxBelievableBytes; }

// What was seen of a GPU is below 0 where others have given back more than the worker took.
std::string WrongWithLooks(const v1::WorkerEvent::Step& step) {
  constexpr int kMost = static_cast<int>(std::size(program::kLooksBehind));
  if (step.looks_size() > kMost)
    return absl::StrCat(step.looks_size(), " looks at memory, at most ", kMost);
  for (const v1::MemoryLook& look : step.looks()) {
    const int64_t seen = look.seen_bytes();
    const bool believable = seen >= -kMaxBelievableBytes && seen <= kMaxBelievableBytes;
    if (!believable || !IsBelievablePeak(look.counted_bytes()))
      return absl::StrCat("a look at memory that counts ", look.counted_bytes(), " bytes and sees ",
                          seen);
    if (look.steps() < 0 || look.steps() > kMaxSteps)
      return absl::StrCat("a look at memory behind step ", look.steps());
  }
  return "";
}

// The step that comes is measured before it is made.
bool IsBelievable(const v1::Drift& drift, int64_t step) {
  return drift.cosine() >= -1.0 && drift.cosine() <= 1.0 && drift.relative_error() >= 0.0 &&
         std::isfinite(drift.relative_error()) && drift.global_step() > 0 &&
         drift.global_step() <= step + 1 && drift.tokens() >= 0 &&
         drift.tokens() <= kMaxBelievableTokens;
}

// Its kinds are labels of series.
std::string WrongWithDrift(const v1::WorkerEvent::Step& step) {
  for (const auto& [kind, drift] : step.drift()) {
    const std::optional<program::Stash> stash = program::StashOfName(kind);
    if (!stash.has_value() || program::RowOf(*stash).fidelity == program::Fidelity::kExact)
      return "the drift of a kind that is none or exact";
    if (!IsBelievable(drift, step.progress().global_step()))
      return absl::StrCat("a drift of ", kind, " with cosine ", drift.cosine(),
                          " and relative error ", drift.relative_error(), ", in step ",
                          drift.global_step(), " on ", drift.tokens(), " tokens");
  }
  constexpr size_t kMaxReasonBytes = 1024;
  if (step.drift_not_measured().size() > kMaxReasonBytes)
    return absl::StrCat("a reason of ", step.drift_not_measured().size(), " bytes, at most ",
                        kMaxReasonBytes);
  return "";
}

// Nobody trains that far: such a number would stay in the job for ever.
std::string AbsurdIn(const v1::Progress& now, int64_t max_steps) {
  const int64_t most = max_steps > 0 ? max_steps : kMaxSteps;
  if (now.global_step() < 0 || now.global_step() > most)
    return absl::StrCat("step ", now.global_step(), " of ", most);
  if (now.max_steps() < 0 || now.max_steps() > most)
    return absl::StrCat("a run of ", now.max_steps(), " steps; it has ", most);
  if (now.num_tokens() < 0 || now.num_tokens() > kMaxBelievableTokens)
    return absl::StrCat(now.num_tokens(), " tokens");
  if (now.resumed_from_step() < 0 || now.resumed_from_step() > most)
    return absl::StrCat("a beginning at step ", now.resumed_from_step());
  return WrongWithMetrics(now);
}

}  // namespace

int64_t MaxSteps(const v1::Job& job) {
  const int64_t given = job.spec().training().max_steps();
  return given > 0 ? given : job.progress().max_steps();
}

bool HasTrained(const v1::Job& job) { return job.progress().global_step() > job.extends_step(); }

std::string WrongWith(const v1::WorkerEvent::Step& step, int64_t step_before, int64_t max_steps) {
  const v1::Progress& now = step.progress();
  if (!IsFinite(now)) return "a number that is not finite";
  if (now.global_step() < step_before)
    return absl::StrCat("step ", now.global_step(), " after step ", step_before);
  if (std::string absurd = AbsurdIn(now, max_steps); !absurd.empty()) return absurd;
  if (!IsBelievablePeak(step.measured_peak_bytes()))
    return absl::StrCat("a peak of ", step.measured_peak_bytes(), " bytes");
  if (std::string wrong = WrongWithDrift(step); !wrong.empty()) return wrong;
  return WrongWithLooks(step);
}

// A result's loss may well be NaN: that is why the attempt has ended.
void DropAbsurd(v1::WorkerResult& result, int64_t max_steps) {
  if (!AbsurdIn(result.progress(), max_steps).empty()) result.clear_progress();
  if (!IsBelievablePeak(result.measured_peak_bytes())) result.clear_measured_peak_bytes();
}

}  // namespace snug::server
