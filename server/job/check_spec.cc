#include "server/job/check_spec.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/snug/bytes.h"
#include "proto/snug/enum_words.h"
#include "server/job/check_data.h"
#include "server/job/check_lora.h"
#include "server/job/check_training.h"
#include "server/job/job_ref.h"
#include "server/job/random_id.h"
#include "server/job/spec_checker.h"
#include "server/plan/plan_proto.h"
#include "server/plan/planner.h"
#include "worker/program/planning/exact_step.h"
#include "worker/program/training_mode.h"

namespace snug::server {
namespace {

using v1::JobSpec;

void CheckModel(const JobSpec& spec, Checker& check) {
  if (spec.model().empty())
    check.Add("model", "is missing: a Hugging Face model directory, or the id of a finished job");
  else if (!NamesJob(spec.model()))
    check.Path("model", spec.model());
}

void CheckNames(const JobSpec& spec, Checker& check) {
  if (static_cast<int64_t>(spec.display_name().size()) > kMaxDisplayNameBytes)
    check.Add("display_name", absl::StrCat("at most ", kMaxDisplayNameBytes, " bytes"));
  for (unsigned char c : spec.display_name()) {
    if (!absl::ascii_iscntrl(c)) continue;
    check.Add("display_name", "cannot hold control characters");
    break;
  }
  CheckModel(spec, check);
  if (spec.method() != JobSpec::METHOD_LORA && spec.method() != JobSpec::METHOD_FULL)
    check.Add("method", "is missing: lora or full");
  check.Integer("priority", spec.priority(), -kMaxPriority, kMaxPriority);
}

bool IsQuantized(const JobSpec& spec) {
  return spec.quantization() == JobSpec::QUANTIZATION_INT8 ||
         spec.quantization() == JobSpec::QUANTIZATION_NF4;
}

void CheckQuantization(const JobSpec& spec, Checker& check) {
  if (!JobSpec::Quantization_IsValid(spec.quantization()))
    check.Add("quantization", "none, int8 or nf4");
  if (!IsQuantized(spec)) return;
  if (spec.method() == JobSpec::METHOD_FULL)
    check.Add("quantization",
              "is for a base that stays as it is, beside an adapter (method lora); a full job "
              "changes every weight: none");
  if (spec.merge())
    check.Add("merge", absl::StrCat(kNoMergeWithCodes, ", or give quantization: none"));
}

// Readers of an adapter would put it beside the plain model, which is another function.
void CheckReversible(const JobSpec& spec, Checker& check) {
  const std::string& form = spec.reversible();
  if (form.empty() || form == program::kNotReversible) return;
  if (form == "meft1" || form == "meft2" || form == "meft3")
    return check.Add("reversible", absl::StrCat(form, " is not offered; none or native"));
  if (form != program::kNativeStreams)
    return check.Add("reversible", absl::StrCat("none or native, not \"", form, "\""));
  if (spec.method() == JobSpec::METHOD_LORA)
    check.Add("reversible",
              "native is for method: full; a model that was trained so takes adapters without it");
}

void CheckMethod(const JobSpec& spec, Checker& check) {
  CheckQuantization(spec, check);
  CheckReversible(spec, check);
  const v1::LoraSpec& lora = spec.lora();
  if (spec.method() == JobSpec::METHOD_FULL) {
    // An empty message asks for nothing, so it may stand there.
    if (lora.ByteSizeLong() > 0) check.Add("lora", "is for method lora; this job's method is full");
    if (spec.merge()) check.Add("merge", "is for method lora; a full job gives a model anyway");
    return;
  }
  CheckLora(lora, check);
}

std::string FidelityName(int fidelity) {
  return LowerEnumWord(static_cast<v1::Fidelity>(fidelity));
}

// What gives other gradients has to be allowed by name.
void CheckKind(const std::string& field, v1::StashKind kind, v1::Fidelity allowed, Checker& check) {
  const std::optional<program::Stash> stash = StashFrom(kind);
  if (!stash.has_value()) {
    const auto name = [](std::string* out, program::Stash one) {
      out->append(program::RowOf(one).name);
    };
    return check.Add(field, absl::StrJoin(program::kAllStashes, ", ", name));
  }
  const program::StashRow& row = program::RowOf(*stash);
  const int needed = v1::FIDELITY_EXACT + static_cast<int>(row.fidelity);
  if (std::max<int>(allowed, v1::FIDELITY_EXACT) >= needed) return;
  check.Add(field, absl::StrCat(row.name, " is ", FidelityName(needed), ", memory.fidelity is ",
                                FidelityName(std::max<int>(allowed, v1::FIDELITY_EXACT)),
                                ": give memory.fidelity: ", FidelityName(needed)));
}

void CheckStashOptions(const v1::MemorySpec& memory, Checker& check) {
  for (const auto& [pattern, options] : memory.stash_options()) {
    const std::string field = absl::StrCat("memory.stash[\"", pattern, "\"]");
    const auto kind = memory.stash().find(pattern);
    if (kind == memory.stash().end()) {
      check.Add(field, "needs a kind: keep, recompute, chunk, ...");
      continue;
    }
    const std::string name = LowerEnumWord(kind->second);
    if (options.has_rows() && kind->second != v1::STASH_KIND_CHUNK) {
      check.Add(field + ".rows", absl::StrCat("is for chunk; this site's kind is ", name));
    } else if (options.has_rows() && options.rows() < 1) {
      check.Add(field + ".rows", absl::StrCat("must be at least 1, not ", options.rows()));
    }
    if (options.has_ahead() && kind->second != v1::STASH_KIND_REVERSIBLE)
      check.Add(field + ".ahead", absl::StrCat("is for reversible; this site's kind is ", name));
    const bool sample = options.has_rho() || !options.estimator().empty();
    if (sample && kind->second != v1::STASH_KIND_SAMPLED) {
      check.Add(field,
                absl::StrCat("rho and estimator are for sampled; this site's kind is ", name));
    } else if (sample) {
      const absl::Status status = program::SampledBy(RhoOf(options), options.estimator()).status();
      if (!status.ok()) check.Add(field, std::string(status.message()));
    }
  }
}

bool Clips(const v1::TrainingSpec& training) {
  return !training.has_max_grad_norm() || training.max_grad_norm() > 0.0;
}

// An update in backward comes before the norm of all gradients is known, and before a later
// micro-batch has added its own.
void CheckGradients(const JobSpec& spec, Checker& check) {
  const v1::MemorySpec& memory = spec.memory();
  if (!v1::MemorySpec::Gradients_IsValid(memory.gradients()))
    check.Add("memory.gradients", "kept, released or auto");
  if (!v1::MemorySpec::OptimizerState_IsValid(memory.optimizer()))
    check.Add("memory.optimizer", "device, host or auto");
  if (memory.gradients() != v1::MemorySpec::GRADIENTS_RELEASED) return;
  const v1::TrainingSpec& training = spec.training();
  if (Clips(training))
    check.Add("memory.gradients",
              "released updates each weight before the norm of all gradients is known, so nothing "
              "can be clipped: give training.max_grad_norm: 0");
  if (training.gradient_accumulation_steps() > 1)
    check.Add("memory.gradients",
              absl::StrCat("released updates with the gradients of one micro-batch; "
                           "training.gradient_accumulation_steps is ",
                           training.gradient_accumulation_steps(), ", not 1"));
}

void CheckSharing(const std::string& sharing, Checker& check) {
  if (!sharing.empty() && sharing != "auto" && sharing != "weights" && sharing != "none")
    check.Add("sharing", absl::StrCat("auto, weights or none, not \"", sharing, "\""));
}

// To share a device always costs a little: a bound below this would have it all to itself.
constexpr double kLowestMaxSlowdown = 1.2;

void CheckSlowdown(const JobSpec& spec, Checker& check) {
  const double bound = MaxSlowdown(spec);
  const bool within = bound >= kLowestMaxSlowdown && bound <= kHighestMaxSlowdown;
  if (bound == 0.0 || within) return;  // NaN is neither.
  check.Add("max_slowdown", absl::StrCat(bound, " is neither 0, which is no bound, nor in [",
                                         kLowestMaxSlowdown, ", ", kHighestMaxSlowdown, "]"));
}

void CheckDriftSteps(const JobSpec& spec, Checker& check) {
  const int64_t steps = DriftSteps(spec);
  if (steps == 0 || (steps >= program::kLeastDriftSteps && steps <= kMaxSteps)) return;
  check.Add("memory.drift_steps", absl::StrCat(steps, " is neither 0, which is never, nor from ",
                                               program::kLeastDriftSteps, " to ", kMaxSteps));
}

// Nobody knows whether what is never measured is within a bound.
void CheckDriftBound(const JobSpec& spec, Checker& check) {
  const v1::MemorySpec& memory = spec.memory();
  const double bound = memory.drift_bound();
  if (bound == 0.0) return;
  if (!(bound > 0.0 && std::isfinite(bound)))
    check.Add("memory.drift_bound",
              absl::StrCat(bound, " is neither 0, which is no bound, nor a number above it"));
  if (memory.fidelity() <= v1::FIDELITY_EXACT) return;
  if (DriftSteps(spec) == 0)
    check.Add("memory.drift_bound", "needs a measurement; memory.drift_steps is 0");
  if (memory.gradients() == v1::MemorySpec::GRADIENTS_RELEASED)
    check.Add("memory.drift_bound",
              "needs a measurement, and gradients that are released cannot be compared: give "
              "memory.gradients: kept");
}

void CheckMemory(const JobSpec& spec, Checker& check) {
  CheckGradients(spec, check);
  CheckDriftSteps(spec, check);
  CheckDriftBound(spec, check);
  const v1::MemorySpec& memory = spec.memory();
  if (!memory.budget().empty() && memory.budget() != "auto") {
    absl::StatusOr<int64_t> bytes = ParseBytes(memory.budget());
    if (!bytes.ok()) check.Add("memory.budget", std::string(bytes.status().message()));
    if (bytes.ok() && *bytes < 1) check.Add("memory.budget", "must be above 0");
  }
  if (!memory.host_budget().empty() && memory.host_budget() != "auto") {
    const absl::StatusOr<int64_t> bytes = ParseBytes(memory.host_budget());
    if (!bytes.ok()) check.Add("memory.host_budget", std::string(bytes.status().message()));
  }
  if (!v1::Fidelity_IsValid(memory.fidelity()))
    check.Add("memory.fidelity", "exact, unbiased or approximate");
  if (static_cast<int64_t>(memory.stash().size()) > kMaxStashPatterns)
    check.Add("memory.stash",
              absl::StrCat(memory.stash().size(), " patterns are more than ", kMaxStashPatterns));
  for (const auto& [pattern, kind] : memory.stash()) {
    if (static_cast<int64_t>(pattern.size()) > kMaxStashPatternBytes)
      check.Add("memory.stash",
                absl::StrCat("a pattern has at most ", kMaxStashPatternBytes, " bytes"));
    CheckKind(absl::StrCat("memory.stash[\"", pattern, "\"]"), kind, memory.fidelity(), check);
  }
  CheckStashOptions(memory, check);
}

void FillLora(v1::LoraSpec& lora) {
  if (!lora.has_r()) lora.set_r(16);
  if (!lora.has_lora_alpha()) lora.set_lora_alpha(32.0);
  if (!lora.has_use_rslora()) lora.set_use_rslora(false);
  if (lora.target_modules().empty()) lora.add_target_modules("all-linear");
}

}  // namespace

double MaxSlowdown(const JobSpec& spec) {
  return spec.has_max_slowdown() ? spec.max_slowdown() : kDefaultMaxSlowdown;
}

bool MayReleaseGradients(const v1::TrainingSpec& training) {
  return !Clips(training) && training.gradient_accumulation_steps() <= 1;
}

std::vector<Violation> CheckSpec(const JobSpec& spec) {
  Checker check;
  CheckNames(spec, check);
  CheckData(spec, check);
  CheckMethod(spec, check);
  CheckTraining(spec, check);
  CheckMemory(spec, check);
  CheckSharing(spec.sharing(), check);
  CheckSlowdown(spec, check);
  return check.Take();
}

std::vector<Violation> CheckDatasetSpec(const JobSpec& spec) {
  Checker check;
  CheckModel(spec, check);
  CheckData(spec, check);
  if (spec.training().has_max_seq_length() && spec.training().max_seq_length() != kAuto)
    check.Integer("training.max_seq_length", spec.training().max_seq_length(), 2,
                  kMaxSequenceTokens);
  return check.Take();
}

void FillDefaults(JobSpec& spec, int64_t model_limit_tokens) {
  const bool lora = spec.method() == JobSpec::METHOD_LORA;
  if (lora) FillLora(*spec.mutable_lora());
  if (!lora) spec.clear_lora();
  FillTraining(*spec.mutable_training(), lora, model_limit_tokens);
  if (spec.quantization() == JobSpec::QUANTIZATION_UNSPECIFIED)
    spec.set_quantization(JobSpec::QUANTIZATION_NONE);
  if (!spec.has_max_slowdown()) spec.set_max_slowdown(kDefaultMaxSlowdown);
  if (spec.memory().budget().empty()) spec.mutable_memory()->set_budget("auto");
  if (spec.memory().fidelity() == v1::FIDELITY_UNSPECIFIED)
    spec.mutable_memory()->set_fidelity(v1::FIDELITY_EXACT);
  if (spec.memory().fidelity() > v1::FIDELITY_EXACT)
    spec.mutable_memory()->set_drift_steps(DriftSteps(spec));
}

}  // namespace snug::server
