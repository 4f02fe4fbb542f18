#include "server/plan/planner.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"
#include "server/plan/plan_proto.h"
#include "worker/program/augmentation.h"
#include "worker/program/eval_metrics.h"
#include "worker/program/generation.h"
#include "worker/program/planning/exact_step.h"
#include "worker/program/stages.h"

namespace snug::server {
namespace {

// Nothing is known of the rows: every sequence is full.
program::LengthCounts FullRows(const v1::JobSpec& spec) {
  program::LengthCounts rows;
  rows.Add(spec.training().max_seq_length(), spec.training().per_device_train_batch_size());
  return rows;
}

program::Augmentation AugmentationOf(const v1::JobSpec& spec) {
  return program::AugmentationOfName(spec.image_augmentation())
      .value_or(program::Augmentation::kNone);
}

// Of prompts, and of sources that are answered when they are evaluated.
program::TapeKey GenerationKeyOf(const program::ModelConfig& config, const RowLengths& lengths,
                                 const v1::JobSpec& spec) {
  const v1::TrainingSpec& training = spec.training();
  program::TapeKey key;
  if (!training.sample_prompts().empty()) {
    const int64_t longest = lengths.longest_prompt;
    key = program::GenerationKey(config, longest > 0 ? longest : MaxPromptTokens(spec),
                                 training.sample_max_new_tokens());
  }
  if (!training.predict_with_generate()) return key;
  const program::LengthCounts& sources = lengths.eval_sources;
  return key.Joined(program::GenerationKey(
      config, sources.empty() ? training.max_seq_length() : sources.longest(),
      training.generation_max_length()));
}

// As memory.stash has it of the head by its path; CheckSpec has refused rows of another kind. 0: it
// says nothing.
int32_t PinnedHeadRows(const v1::JobSpec& spec, const program::ModelConfig& config) {
  const auto& options = spec.memory().stash_options();
  const auto head = options.find(program::HeadPathOf(config));
  const bool given = head != options.end() && head->second.has_rows();
  return given ? head->second.rows() : 0;
}

program::Machine LoweredFor(const PlanMachine& machine, program::DType compute) {
  return {.threads = machine.threads,
          .cpu = !machine.gpu,
          .rates = machine.rates.At(compute),
          .head_rows = machine.rates.head_rows};
}

// Fewer rows of the head than the machine is fast with, the most first: for a GPU's plans, where
// the job does not pin them, and fewer than any batch has.
std::vector<int32_t> FewerHeadRows(const v1::JobSpec& spec, const program::ModelConfig& config,
                                   const program::PredictOptions& options) {
  if (options.lower.machine.cpu || PinnedHeadRows(spec, config) > 0) return {};
  const int64_t most = std::max(
      {options.lower.key.tokens, options.evaluation_key.tokens, options.generation_key.tokens});
  std::vector<int32_t> fewer;
  for (const int32_t rows : program::kHeadRowChoices)
    if (rows < std::min<int64_t>(options.lower.rows_of_head(), most))
      fewer.insert(fewer.begin(), rows);
  return fewer;
}

// Where nothing is known of the rows they are full, their sources too.
program::TapeKey WorstOf(const program::Program& program, const program::LengthCounts& rows,
                         const program::LengthCounts& sources, const v1::JobSpec& spec) {
  const program::Batching batching = BatchingOf(spec);
  const program::LengthCounts full = FullRows(spec);
  const program::TapeKey worst = program::WithStages(
      program::WorstBatch(rows.empty() ? full : rows, batching), program.config);
  if (!program.config.has_source()) return worst;
  return program::WithSources(worst, sources.empty() ? full : sources, batching);
}

// For reading, and exact for writing into a job file.
std::string Exactly(int64_t bytes) {
  return absl::StrCat(FormatBytes(bytes), " (", bytes, " bytes)");
}

// What is chosen for a limit, and what is chosen where nothing of the host's memory is free, is
// lowered in full before anybody relies on it. `state` of that memory is taken under every plan.
absl::Status VerifyChoices(const program::Program& program, const program::PredictOptions& options,
                           const std::vector<int64_t>& limits, int64_t state,
                           const std::vector<program::Prediction>& plans) {
  std::set<int> chosen;
  for (int64_t limit : limits) {
    chosen.insert(program::FastestThatFits(plans, limit));
    chosen.insert(program::FastestThatFits(plans, limit, state));
  }
  chosen.erase(-1);
  for (int index : chosen)
    RETURN_IF_ERROR(program::Verify(program, plans[static_cast<size_t>(index)], options));
  return absl::OkStatus();
}

// What lies on the host under every plan: the optimizer's state, where the job puts it there.
int64_t StateOnHost(const program::Program& program, const program::PredictOptions& options) {
  return program::StaticComponents(program, options.lower.key, options.lower.machine,
                                   options.context_bytes)
      .host;
}

absl::Status CheckHostBudget(const v1::JobSpec& spec, const char* what, int64_t bytes) {
  const std::optional<int64_t> budget = HostBudgetBytes(spec);
  if (!budget.has_value() || bytes <= *budget) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("memory.host_budget: ", what, " takes ",
                                                 Exactly(bytes), "; the budget is ",
                                                 Exactly(*budget)));
}

program::Fidelity FidelityOf(const v1::JobSpec& spec) {
  return static_cast<program::Fidelity>(
      std::max<int>(spec.memory().fidelity(), v1::FIDELITY_EXACT) - v1::FIDELITY_EXACT);
}

absl::StatusOr<std::vector<program::Prediction>> Predictions(const program::Program& program,
                                                             const v1::JobSpec& spec,
                                                             const program::PredictOptions& options,
                                                             program::PlanList list) {
  const int64_t state = StateOnHost(program, options);
  RETURN_IF_ERROR(CheckHostBudget(spec, "what memory.optimizer puts there", state));
  const std::map<std::string, program::SiteStash> patterns = PatternsOf(spec, program.config);
  if (patterns.empty()) {
    list.fidelity = FidelityOf(spec);
    list.host_bytes = HostBudgetBytes(spec).value_or(std::max(state, list.host_bytes)) - state;
    ASSIGN_OR_RETURN(std::vector<program::Prediction> plans,
                     program::PredictPlans(program, options, list));
    RETURN_IF_ERROR(VerifyChoices(program, options, list.limits, state, plans));
    return plans;
  }
  ASSIGN_OR_RETURN(const program::Plan pinned, program::PinnedPlan(program, patterns));
  ASSIGN_OR_RETURN(program::Prediction prediction, program::Predict(program, pinned, options));
  RETURN_IF_ERROR(CheckHostBudget(spec,
                                  program.optimizer_on_host
                                      ? "what memory.stash offloads, with the optimizer's state,"
                                      : "what memory.stash offloads",
                                  prediction.bytes.host));
  return std::vector<program::Prediction>{std::move(prediction)};
}

// The optimizer reads gradients, moments and masters, and writes the last two: once a step, at the
// speed of memory, or of the bus to where they lie. Trained values in the compute dtype are of
// little weight beside.
double OptimizerSeconds(const program::Program& program, const program::PredictOptions& options) {
  const program::Components bytes = program::StaticComponents(
      program, options.lower.key, options.lower.machine, options.context_bytes);
  const program::Machine& machine = options.lower.machine;
  const auto on_host = static_cast<double>(bytes.host);
  const double moments = static_cast<double>(bytes.optimizer) + (machine.cpu ? on_host : 0.0);
  program::Work work;
  work[program::Limit::kPasses] = static_cast<double>(bytes.gradients) + 2.0 * moments;
  if (!machine.cpu) work[program::Limit::kFromHost] = work[program::Limit::kToHost] = on_host;
  return program::SecondsOf(work, machine);
}

// A prediction, and what its plan is lowered with.
struct Planned {
  program::Prediction prediction;
  program::LowerOptions lower;
};

// Index of the one that takes the least of the device, of those that take no more than so much of
// the host; or -1.
int SmallestWithin(const std::vector<program::Prediction>& plans, int64_t host_bytes) {
  int smallest = -1;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].bytes.host > host_bytes) continue;
    if (smallest < 0 || plans[i].bytes.total() < plans[static_cast<size_t>(smallest)].bytes.total())
      smallest = static_cast<int>(i);
  }
  return smallest;
}

// Adds to `plans`, which go through the head with as many rows as the machine is fast with. Of a
// limit that none of these is within: with the most rows that leave one, the fastest. And, so that
// a job needs no more than it has to, the smallest plan with the fewest rows, where the job does
// not pin how values are kept and that is smaller than all.
absl::Status AddShorterPasses(const program::Program& program, const v1::JobSpec& spec,
                              const program::PredictOptions& options, program::PlanList list,
                              std::vector<Planned>& plans) {
  const std::vector<int32_t> fewer = FewerHeadRows(spec, program.config, options);
  if (fewer.empty() || plans.empty()) return absl::OkStatus();
  const bool pinned = !PatternsOf(spec, program.config).empty();
  const int64_t host = pinned ? INT64_MAX : StateOnHost(program, options);
  std::vector<program::Prediction> whole;
  for (const Planned& plan : plans) whole.push_back(plan.prediction);
  const auto met = [](const std::vector<program::Prediction>& some) {
    return [&some](int64_t limit) { return program::FastestThatFits(some, limit) >= 0; };
  };
  std::erase_if(list.limits, met(whole));
  list.recompute_plans = false;
  list.most_mixes = 1;
  const double keep = whole.front().seconds / whole.front().relative_work;
  for (const int32_t rows : fewer) {
    const bool last = rows == fewer.back();
    if (list.limits.empty() && (pinned || !last)) continue;
    program::PredictOptions shorter = options;
    shorter.lower.head_rows = rows;
    ASSIGN_OR_RETURN(const std::vector<program::Prediction> made,
                     Predictions(program, spec, shorter, list));
    std::set<int> chosen;
    for (const int64_t limit : list.limits) chosen.insert(program::FastestThatFits(made, limit));
    const int smallest = SmallestWithin(made, host), before = SmallestWithin(whole, host);
    const auto bytes = [](const std::vector<program::Prediction>& some, int index) {
      return index < 0 ? INT64_MAX : some[static_cast<size_t>(index)].bytes.total();
    };
    if (last && bytes(made, smallest) < bytes(whole, before)) chosen.insert(smallest);
    chosen.erase(-1);
    for (const int index : chosen) {
      plans.push_back({made[static_cast<size_t>(index)], shorter.lower});
      Planned& plan = plans.back();
      plan.prediction.relative_work = plan.prediction.seconds / keep;
      absl::StrAppend(&plan.prediction.plan.name, ", ", rows, " rows of the head");
    }
    std::erase_if(list.limits, met(made));
  }
  std::stable_sort(plans.begin(), plans.end(), [](const Planned& a, const Planned& b) {
    return std::pair(a.prediction.relative_work, a.prediction.bytes.total()) <
           std::pair(b.prediction.relative_work, b.prediction.bytes.total());
  });
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::Plan>> PlansOf(const program::Program& program,
                                              const v1::JobSpec& spec,
                                              const program::PredictOptions& options,
                                              const program::PlanList& list) {
  ASSIGN_OR_RETURN(std::vector<program::Prediction> predictions,
                   Predictions(program, spec, options, list));
  std::vector<Planned> planned;
  for (program::Prediction& prediction : predictions)
    planned.push_back({std::move(prediction), options.lower});
  RETURN_IF_ERROR(AddShorterPasses(program, spec, options, list, planned));
  const StepShape step = {.accumulation = spec.training().gradient_accumulation_steps(),
                          .optimizer_seconds = OptimizerSeconds(program, options)};
  std::vector<v1::Plan> plans;
  for (const Planned& plan : planned)
    plans.push_back(ToProto(program, plan.prediction, plan.lower, step));
  return plans;
}

}  // namespace

bool Evaluates(const v1::JobSpec& spec) {
  return !spec.eval_dataset().empty() || !spec.eval_dataset_split().empty() ||
         spec.eval_split() != 0.0;
}

int64_t MaxPromptTokens(const v1::JobSpec& spec) {
  const v1::TrainingSpec& training = spec.training();
  // A source is as long as a row's; its answer is none of it.
  if (spec.task() == v1::JobSpec::TASK_SEQ2SEQ_LM) return training.max_seq_length();
  return std::max<int64_t>(1, training.max_seq_length() - training.sample_max_new_tokens());
}

std::map<std::string, program::SiteStash> PatternsOf(const v1::JobSpec& spec,
                                                     const program::ModelConfig& config) {
  std::map<std::string, program::SiteStash> patterns;
  const auto& options = spec.memory().stash_options();
  for (const auto& [pattern, kind] : spec.memory().stash()) {
    if (pattern == program::HeadPathOf(config) && kind == v1::STASH_KIND_CHUNK) continue;
    const auto found = options.find(pattern);
    patterns[pattern] = WithOptions(StashFrom(kind).value_or(program::Stash::kKeep),  // Checked.
                                    found == options.end() ? v1::StashOptions() : found->second);
  }
  return patterns;
}

program::Batching BatchingOf(const v1::JobSpec& spec) {
  const v1::TrainingSpec& training = spec.training();
  return {.rows = training.per_device_train_batch_size(),
          .accumulation = training.gradient_accumulation_steps(),
          .packing = training.packing(),
          .max_seq_length = training.max_seq_length(),
          .group_by_length = training.group_by_length()};
}

int64_t DriftSteps(const v1::JobSpec& spec) {
  const v1::MemorySpec& memory = spec.memory();
  return memory.has_drift_steps() ? memory.drift_steps() : program::kLeastDriftSteps;
}

program::PredictOptions OptionsFor(const program::Program& program, const v1::JobSpec& spec,
                                   const RowLengths& lengths, const PlanMachine& machine) {
  program::PredictOptions options;
  options.lower.machine = LoweredFor(machine, program.compute);
  options.context_bytes = machine.context_bytes;
  options.lower.head_rows = PinnedHeadRows(spec, program.config);
  options.lower.key = WorstOf(program, lengths.train, lengths.train_sources, spec);
  if (Evaluates(spec))
    options.evaluation_key = WorstOf(program, lengths.eval, lengths.eval_sources, spec);
  options.data_bytes = program::DataBytes(lengths.train, lengths.eval, BatchingOf(spec)) +
                       program::SourceBytes(lengths.train_sources, lengths.eval_sources) +
                       program::RoomOf(program.config, AugmentationOf(spec)).bytes();
  if (Evaluates(spec))
    options.data_bytes += program::EvaluationBytes(program.config, lengths.eval.rows);
  options.generation_key = GenerationKeyOf(program.config, lengths, spec);
  options.measures_drift = spec.memory().fidelity() > v1::FIDELITY_EXACT && DriftSteps(spec) > 0;
  return options;
}

absl::StatusOr<v1::Plan> AnsweringPlan(const program::Program& frozen, int64_t prompt_tokens,
                                       int64_t new_tokens, const PlanMachine& machine) {
  const program::LowerOptions options{
      .key = program::GenerationKey(frozen.config, prompt_tokens, new_tokens),
      .machine = LoweredFor(machine, frozen.compute),
      .training = false};
  ASSIGN_OR_RETURN(const program::Components bytes,
                   program::AnsweringBytes(frozen, options, machine.context_bytes));
  v1::Plan plan;
  plan.set_name("answers");
  *plan.mutable_key() = ToProto(options.key);
  v1::MemoryComponents& memory = *plan.mutable_memory();
  memory.set_context_bytes(bytes.context);
  memory.set_weights_bytes(bytes.weights);
  memory.set_adapter_bytes(bytes.adapter);
  memory.set_inputs_bytes(bytes.inputs);
  memory.set_workspace_bytes(bytes.arena);
  plan.set_arena_bytes(bytes.arena);
  plan.set_peak_bytes(bytes.total());
  plan.set_threads(machine.threads);
  plan.set_head_rows(options.rows_of_head());
  return plan;
}

absl::StatusOr<std::vector<v1::Plan>> PlansFor(const program::Program& program,
                                               const v1::JobSpec& spec, const RowLengths& lengths,
                                               const PlanMachine& machine, program::PlanList list) {
  list.limits.push_back(BudgetBytes(spec));
  list.host_bytes = machine.host_bytes;
  return PlansOf(program, spec, OptionsFor(program, spec, lengths, machine), list);
}

absl::StatusOr<std::vector<v1::Plan>> SmallestPlans(const program::Program& program,
                                                    const v1::JobSpec& spec,
                                                    const RowLengths& lengths,
                                                    const PlanMachine& machine) {
  program::PredictOptions options = OptionsFor(program, spec, lengths, machine);
  const std::vector<int32_t> fewer = FewerHeadRows(spec, program.config, options);
  if (!fewer.empty()) options.lower.head_rows = fewer.back();
  absl::StatusOr<std::vector<v1::Plan>> smallest =
      PlansOf(program, spec, options, {.recompute_plans = false, .most_mixes = 1});
  // A pinned plan that offloads more than memory.host_budget allows.
  if (absl::IsInvalidArgument(smallest.status())) return std::vector<v1::Plan>();
  return smallest;
}

absl::StatusOr<bool> AnyPlanFits(const program::Program& program, const v1::JobSpec& spec,
                                 const RowLengths& lengths, const PlanMachine& machine,
                                 const PlanLimits& limits) {
  ASSIGN_OR_RETURN(const std::vector<v1::Plan> smallest,
                   SmallestPlans(program, spec, lengths, machine));
  return FirstThatFits(smallest, limits.device_bytes, limits.host_bytes) >= 0;
}

int64_t BudgetBytes(const v1::JobSpec& spec) {
  const std::string& budget = spec.memory().budget();
  if (budget.empty() || budget == "auto") return INT64_MAX;
  return ParseBytes(budget).value_or(INT64_MAX);  // CheckSpec has refused what does not parse.
}

std::optional<int64_t> HostBudgetBytes(const v1::JobSpec& spec) {
  const std::string& budget = spec.memory().host_budget();
  if (budget.empty() || budget == "auto") return std::nullopt;
  return ParseBytes(budget).value_or(0);  // CheckSpec has refused what does not parse.
}

int FirstThatFits(const std::vector<v1::Plan>& plans, int64_t limit_bytes,
                  int64_t host_limit_bytes) {
  for (size_t i = 0; i < plans.size(); ++i) {
    const bool fits =
        plans[i].peak_bytes() <= limit_bytes && plans[i].host_bytes() <= host_limit_bytes;
    if (fits) return static_cast<int>(i);
  }
  return -1;
}

int SmallestOf(const std::vector<v1::Plan>& plans) {
  const auto smallest = std::min_element(
      plans.begin(), plans.end(),
      [](const v1::Plan& a, const v1::Plan& b) { return a.peak_bytes() < b.peak_bytes(); });
  return static_cast<int>(smallest - plans.begin());
}

std::string RefusalOf(const std::vector<v1::Plan>& plans, const std::string& device,
                      int64_t capacity_bytes, int64_t budget_bytes) {
  const v1::Plan& smallest = plans[static_cast<size_t>(SmallestOf(plans))];
  const std::string need = absl::StrCat(
      "the job needs ", Exactly(smallest.peak_bytes()),
      plans.size() == 1 ? " under its plan (" : " at its smallest plan (", smallest.name(), ")");
  if (smallest.peak_bytes() > capacity_bytes)
    return absl::StrCat(need, "; ", device, " has ", Exactly(capacity_bytes),
                        ": take a smaller batch or max_seq_length, or a larger device");
  return absl::StrCat(need, "; its memory.budget is ", Exactly(budget_bytes),
                      ": raise it, or take a smaller batch or max_seq_length");
}

std::string HostRefusalOf(const std::vector<v1::Plan>& plans, int64_t limit_bytes,
                          int64_t host_limit_bytes) {
  const v1::Plan* least = nullptr;
  for (const v1::Plan& plan : plans) {
    if (plan.peak_bytes() > limit_bytes) continue;
    if (least == nullptr || plan.host_bytes() < least->host_bytes()) least = &plan;
  }
  return absl::StrCat("the job needs ", Exactly(least->host_bytes()),
                      " of the host's memory under its plan (", least->name(), "); it has ",
                      Exactly(host_limit_bytes), ": offload less, or take more host memory");
}

std::vector<v1::Site> SitesOf(const program::Program& program, int64_t tokens) {
  std::vector<v1::Site> sites;
  for (const program::Site& site : program::SitesOf(program)) {
    v1::Site& out = sites.emplace_back();
    out.set_name(site.name);
    out.set_bytes(site.bytes_per_token * tokens);
    out.set_companion(site.companion);
  }
  return sites;
}

}  // namespace snug::server
