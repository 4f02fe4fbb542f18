#include "server/job/check_spec.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/bytes.h"
#include "server/job/random_id.h"

namespace snug::server {
namespace {

using v1::JobSpec;
using v1::TrainingSpec;

constexpr const char* kBadField = "BAD_FIELD";

// Collects; every check goes on after a violation.
class Checker {
 public:
  void Add(std::string field, std::string message, std::string reason = kBadField) {
    found_.push_back({absl::StrCat("spec.", field), std::move(message), std::move(reason)});
  }
  void Integer(const char* field, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high)
      Add(field, absl::StrCat(value, " is outside ", low, " to ", high));
  }
  // Closed at `low`; closed at `high` unless `open`.
  void Real(const char* field, double value, double low, double high, bool open = false) {
    const bool inside = value >= low && (open ? value < high : value <= high);
    if (inside) return;  // NaN is not.
    Add(field, absl::StrCat(value, " is outside [", low, ", ", high, open ? ")" : "]"));
  }
  void Path(const char* field, const std::string& path) {
    if (static_cast<int64_t>(path.size()) > kMaxPathBytes)
      Add(field, absl::StrCat("a path of ", path.size(), " bytes; at most ", kMaxPathBytes));
    else if (absl::StrContains(path, '\0'))
      Add(field, "a path cannot hold a zero byte");
    else if (!absl::StartsWith(path, "/"))
      Add(field, absl::StrCat("\"", path, "\" must be an absolute path"));
  }
  std::vector<Violation> Take() { return std::move(found_); }

 private:
  std::vector<Violation> found_;
};

void CheckNames(const JobSpec& spec, Checker& check) {
  if (static_cast<int64_t>(spec.display_name().size()) > kMaxDisplayNameBytes)
    check.Add("display_name", absl::StrCat("at most ", kMaxDisplayNameBytes, " bytes"));
  for (unsigned char c : spec.display_name()) {
    if (!absl::ascii_iscntrl(c)) continue;
    check.Add("display_name", "cannot hold control characters");
    break;
  }
  if (spec.model().empty())
    check.Add("model", "is missing: a Hugging Face model directory, or the id of a finished job");
  else if (!IsJobId(spec.model()))
    check.Path("model", spec.model());
  if (spec.method() != JobSpec::LORA && spec.method() != JobSpec::FULL)
    check.Add("method", "is missing: lora or full");
  check.Integer("priority", spec.priority(), -kMaxPriority, kMaxPriority);
}

void CheckData(const JobSpec& spec, Checker& check) {
  if (spec.dataset().empty())
    check.Add("dataset", "is missing: a JSONL file");
  else
    check.Path("dataset", spec.dataset());
  if (!spec.eval_dataset().empty()) check.Path("eval_dataset", spec.eval_dataset());
  if (spec.eval_split() == 0.0) return;
  if (!(spec.eval_split() > 0.0 && spec.eval_split() < 1.0))
    check.Add("eval_split", absl::StrCat(spec.eval_split(), " is outside (0, 1)"));
  if (!spec.eval_dataset().empty())
    check.Add("eval_split", "give eval_dataset or eval_split, not both");
}

void CheckLora(const JobSpec& spec, Checker& check) {
  const v1::LoraSpec& lora = spec.lora();
  if (spec.method() == JobSpec::FULL) {
    // An empty message asks for nothing, so it may stand there.
    if (lora.ByteSizeLong() > 0) check.Add("lora", "is for method lora; this job's method is full");
    return;
  }
  check.Integer("lora.r", lora.r(), 0, kMaxRank);
  check.Real("lora.lora_alpha", lora.lora_alpha(), 0.0, 1e6);
  check.Real("lora.lora_dropout", lora.lora_dropout(), 0.0, 1.0, /*open=*/true);
  for (const std::string& module : lora.target_modules())
    if (module.empty()) check.Add("lora.target_modules", "holds an empty name");
  if (!lora.init_adapter().empty()) check.Path("lora.init_adapter", lora.init_adapter());
}

void CheckSteps(const JobSpec& spec, Checker& check) {
  const TrainingSpec& training = spec.training();
  check.Real("training.num_train_epochs", training.num_train_epochs(), 0.0, 1e6);
  check.Integer("training.max_steps", training.max_steps(), 0, kMaxSteps);
  check.Integer("training.per_device_train_batch_size", training.per_device_train_batch_size(), 0,
                kMaxBatchRows);
  check.Integer("training.gradient_accumulation_steps", training.gradient_accumulation_steps(), 0,
                kMaxBatchRows);
  if (training.max_seq_length() != 0)
    check.Integer("training.max_seq_length", training.max_seq_length(), 2, kMaxSequenceTokens);
  check.Integer("training.warmup_steps", training.warmup_steps(), 0, kMaxSteps);
  check.Integer("training.eval_steps", training.eval_steps(), 0, kMaxSteps);
  check.Integer("training.save_steps", training.save_steps(), 0, kMaxSteps);
  check.Integer("training.save_total_limit", training.save_total_limit(), 0, 1000);
  check.Integer("training.logging_steps", training.logging_steps(), 0, kMaxSteps);
  if (training.has_seed()) check.Integer("training.seed", training.seed(), 0, INT64_MAX);
  if (training.eval_steps() > 0 && spec.eval_dataset().empty() && spec.eval_split() == 0.0)
    check.Add("training.eval_steps",
              "needs something to evaluate: give eval_dataset or eval_split");
}

void CheckOptimizer(const JobSpec& spec, Checker& check) {
  const TrainingSpec& training = spec.training();
  check.Real("training.learning_rate", training.learning_rate(), 0.0, 1e3);
  check.Real("training.warmup_ratio", training.warmup_ratio(), 0.0, 1.0);
  check.Real("training.weight_decay", training.weight_decay(), 0.0, 1e3);
  check.Real("training.max_grad_norm", training.max_grad_norm(), 0.0, 1e30);
  check.Real("training.adam_beta1", training.adam_beta1(), 0.0, 1.0, /*open=*/true);
  check.Real("training.adam_beta2", training.adam_beta2(), 0.0, 1.0, /*open=*/true);
  if (training.has_adam_epsilon() && !(training.adam_epsilon() > 0.0))
    check.Add("training.adam_epsilon", "must be above 0");
  if (!TrainingSpec::LrSchedulerType_IsValid(training.lr_scheduler_type()))
    check.Add("training.lr_scheduler_type", "linear, cosine, constant or constant_with_warmup");
  if (!TrainingSpec::Precision_IsValid(training.precision()))
    check.Add("training.precision", "fp32 or bf16");
  if (spec.method() == JobSpec::FULL && training.precision() == TrainingSpec::BF16)
    check.Add("training.precision", "full fine-tuning is in fp32; bf16 is for method lora");
}

void CheckMemory(const JobSpec& spec, Checker& check) {
  const v1::MemorySpec& memory = spec.memory();
  if (!memory.budget().empty() && memory.budget() != "auto") {
    absl::StatusOr<int64_t> bytes = ParseBytes(memory.budget());
    if (!bytes.ok()) check.Add("memory.budget", std::string(bytes.status().message()));
    if (bytes.ok() && *bytes < 1) check.Add("memory.budget", "must be above 0");
  }
  if (!v1::Fidelity_IsValid(memory.fidelity()))
    check.Add("memory.fidelity", "exact, unbiased or approximate");
  for (const auto& [pattern, kind] : memory.stash()) {
    // Matching tries every split at every star: their number bounds the work.
    if (pattern.size() > 128 || std::count(pattern.begin(), pattern.end(), '*') > 6)
      check.Add("memory.stash", "a pattern has at most 128 bytes and 6 stars");
    if (kind != v1::KEEP && kind != v1::RECOMPUTE)
      check.Add(absl::StrCat("memory.stash[\"", pattern, "\"]"), "keep or recompute");
  }
}

void FillLora(v1::LoraSpec& lora) {
  if (lora.r() == 0) lora.set_r(16);
  if (lora.lora_alpha() == 0.0) lora.set_lora_alpha(32.0);
  if (!lora.has_use_rslora()) lora.set_use_rslora(false);
  if (lora.target_modules().empty()) lora.add_target_modules("all-linear");
}

void FillTraining(TrainingSpec& training, bool lora, int64_t model_limit_tokens) {
  constexpr int64_t kDefaultSequenceTokens = 2048;
  if (training.max_steps() == 0 && training.num_train_epochs() == 0.0)
    training.set_num_train_epochs(1.0);
  if (training.per_device_train_batch_size() == 0) training.set_per_device_train_batch_size(8);
  if (training.gradient_accumulation_steps() == 0) training.set_gradient_accumulation_steps(1);
  if (!training.has_learning_rate()) training.set_learning_rate(lora ? 2e-4 : 1e-5);
  if (training.lr_scheduler_type() == TrainingSpec::LR_SCHEDULER_TYPE_UNSPECIFIED)
    training.set_lr_scheduler_type(TrainingSpec::COSINE);
  if (!training.has_max_grad_norm()) training.set_max_grad_norm(1.0);
  if (training.max_seq_length() == 0)
    training.set_max_seq_length(
        static_cast<int32_t>(std::min(kDefaultSequenceTokens, model_limit_tokens)));
  if (!training.has_packing()) training.set_packing(true);
  if (training.precision() == TrainingSpec::PRECISION_UNSPECIFIED)
    training.set_precision(TrainingSpec::FP32);
  if (!training.has_seed()) training.set_seed(42);
  if (training.save_total_limit() == 0) training.set_save_total_limit(2);
  if (training.logging_steps() == 0) training.set_logging_steps(1);
  if (!training.has_adam_beta1()) training.set_adam_beta1(0.9);
  if (!training.has_adam_beta2()) training.set_adam_beta2(0.999);
  if (!training.has_adam_epsilon()) training.set_adam_epsilon(1e-8);
}

}  // namespace

std::vector<Violation> CheckSpec(const JobSpec& spec) {
  Checker check;
  CheckNames(spec, check);
  CheckData(spec, check);
  CheckLora(spec, check);
  CheckSteps(spec, check);
  CheckOptimizer(spec, check);
  CheckMemory(spec, check);
  return check.Take();
}

void FillDefaults(JobSpec& spec, int64_t model_limit_tokens) {
  const bool lora = spec.method() == JobSpec::LORA;
  if (lora) FillLora(*spec.mutable_lora());
  if (!lora) spec.clear_lora();
  FillTraining(*spec.mutable_training(), lora, model_limit_tokens);
  if (spec.memory().budget().empty()) spec.mutable_memory()->set_budget("auto");
  if (spec.memory().fidelity() == v1::FIDELITY_UNSPECIFIED)
    spec.mutable_memory()->set_fidelity(v1::EXACT);
}

}  // namespace snug::server
