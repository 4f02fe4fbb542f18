#include "worker/program/planning/predict.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/snug/status_macros.h"
#include "worker/program/generation.h"
#include "worker/program/moments.h"
#include "worker/program/planning/block_cost.h"
#include "worker/program/planning/exact_step.h"
#include "worker/program/planning/plan_memo.h"
#include "worker/program/quantization.h"

namespace snug::program {

int64_t BatchBytes(const Program& program, const TapeKey& key, const Machine& machine) {
  constexpr int64_t k32 = 4, k64 = 8;
  const int64_t of_gpu = Aligned((key.documents + 1) * k32) +
                         (program.config.has_source() ? Aligned(key.documents * k64) : 0);
  const int64_t frequencies = program.config.rotary_width() / 2;
  const int64_t table = Aligned(frequencies * k32) +                  // frequencies
                        2 * Aligned(key.tokens * frequencies * k32);  // cos, sin
  const int64_t tables = program.config.local_rope_theta > 0.0 ? 2 : 1;
  const int64_t types = program.config.token_types > 0 ? Aligned(key.tokens * k32) : 0;
  const ModelConfig& config = program.config;
  const int64_t patches = config.of_images() ? config.patch_width() * SizeOf(program.compute) : 0;
  const int64_t overflow = program.config.reversible ? Aligned(k32) : 0;
  const int64_t labels = config.of_images() ? 2 * Aligned(key.tokens * k32) : 0;
  const int64_t targets = program.config.has_targets() ? program.config.labels : 0;
  const int64_t judged = config.of_documents() ? key.documents : key.tokens;
  const int64_t logits = config.classifies() ? judged * config.labels : 0;
  const int64_t sources = program.config.has_source() ? Aligned(key.source_tokens * k32) +
                                                            Aligned((key.documents + 1) * k64)
                                                      : 0;
  return Aligned(key.documents * targets * k32) +  // of documents, where these have such
         Aligned(key.tokens * patches) + labels +  // of images: a second label and its share too
         sources +                                 // ids and offsets of an encoder's rows
         types +                                   // of tokens, where the model has such
         overflow +                                // of streams, where it has such
         2 * Aligned(key.tokens * k32) +           // ids, positions within the document
         Aligned(key.tokens * k64) +               // trained rows,
         2 * Aligned(key.tokens * k32) +           // their labels and loss weights,
         2 * Aligned(key.tokens * k64) +           // what is found of them: loss, entropy,
         Aligned(key.tokens * k32) +               // whether the label is the likeliest,
         Aligned(logits * k32) +                   // and of evaluated classes the logits
         Aligned((key.documents + 1) * k64) + tables * table +
         (machine.cpu ? 0 : of_gpu);  // offsets in 32 bits, lengths of sources
}

Components StaticComponents(const Program& program, const TapeKey& key, const Machine& machine,
                            int64_t context_bytes) {
  constexpr int64_t kF32 = 4;
  Components bytes;
  int64_t& optimizer = program.optimizer_on_host ? bytes.host : bytes.optimizer;
  bytes.context = context_bytes;
  for (const Parameter& parameter : program.parameters) {
    const int64_t held = ValueBytes(parameter);
    (parameter.adapter ? bytes.adapter : bytes.weights) += held;
    if (!parameter.trainable) continue;
    if (!parameter.released) bytes.gradients += Aligned(parameter.elements() * kF32);
    optimizer += OptimizerBytes(program, parameter);
  }
  if (!machine.cpu) bytes.optimizer += kNormBytes;
  bytes.inputs = BatchBytes(program, key, machine);
  return bytes;
}

int64_t FrozenBytes(const Program& program) {
  int64_t bytes = 0;
  for (const Parameter& parameter : program.parameters)
    if (IsFrozen(parameter)) bytes += ValueBytes(parameter);
  return bytes;
}

int64_t ArenaBytes(const Components& others, int64_t needed, const Machine& machine) {
  if (machine.cpu) return needed;
  const int64_t beside = others.held() - others.arena;
  return WholeGpuPages(beside) - beside + WholeGpuPages(needed);
}

namespace {

// What a job takes whatever its plan is, and what of the arena the phases without a plan need.
class JobBytes {
 public:
  static absl::StatusOr<JobBytes> Of(const Program& program, const PredictOptions& options) {
    JobBytes job;
    job.machine_ = options.lower.machine;
    LowerOptions forward = options.lower;
    if (options.evaluation_key.tokens > 0) forward.key = options.evaluation_key;
    const TapeKey inputs = options.lower.key.Joined(forward.key).Joined(options.generation_key);
    job.static_ = StaticComponents(program, inputs, job.machine_, options.context_bytes);
    if (job.machine_.cpu) job.static_.data = options.data_bytes;
    ASSIGN_OR_RETURN(job.forward_arena_, ForwardArenaBytes(program, forward));
    if (options.measures_drift && CanMeasureDrift(program)) {
      ASSIGN_OR_RETURN(job.exact_arena_, LeastExactArena(program, options.lower));
    }
    if (options.generation_key.tokens == 0) return job;
    forward.key = options.generation_key;
    ASSIGN_OR_RETURN(const int64_t tape_bytes, ForwardArenaBytes(program, forward));
    job.forward_arena_ =
        std::max(job.forward_arena_, GenerationBytes(program, forward.key, tape_bytes));
    return job;
  }

  Components With(int64_t step_arena, bool exact) const {
    Components bytes = static_;
    const int64_t needed = std::max({step_arena, forward_arena_, exact ? 0 : exact_arena_});
    bytes.arena = ArenaBytes(static_, needed, machine_);
    return bytes;
  }

  // The arena of the step by which inexact plans are measured; 0: none is measured.
  int64_t exact_arena() const { return exact_arena_; }

  // On a CPU recoveries that run ahead have a team of threads of their own, whose products pack
  // their operands as those of the first team do, which the context holds (execute/gemm.h).
  int64_t SecondTeamBytes(const Plan& plan) const {
    constexpr int64_t kOfThread = int64_t{11} << 20;
    const bool ahead = std::any_of(plan.recipes.begin(), plan.recipes.end(), [](const Recipe& of) {
      return std::any_of(of.begin(), of.end(), [](const SiteStash& stash) { return stash.ahead; });
    });
    return machine_.cpu && ahead ? machine_.threads * kOfThread : 0;
  }

 private:
  Machine machine_;
  Components static_;  // Without the arena.
  int64_t forward_arena_ = 0, exact_arena_ = 0;
};

// "chunk 12.50 %, recompute 30.00 %": what is not kept as it is.
std::string NameOf(const std::map<Stash, double>& shares) {
  std::string name;
  for (const auto& [stash, share] : shares) {
    if (stash == Stash::kKeep) continue;
    absl::StrAppendFormat(&name, "%s%s %.2f %%", name.empty() ? "" : ", ", RowOf(stash).name,
                          100.0 * share);
  }
  return name.empty() ? "keep, in loops" : name;
}

Prediction PredictionOf(const LoweredPlan& lowered, const JobBytes& job, double keep_seconds) {
  Prediction prediction;
  prediction.plan = lowered.plan;
  prediction.bytes = job.With(lowered.arena_bytes, IsExact(lowered.shares));
  prediction.bytes.host += lowered.host_bytes;
  prediction.bytes.context += job.SecondTeamBytes(lowered.plan);
  prediction.peak = lowered.peak;
  prediction.alignment = prediction.bytes.arena - lowered.peak.total();
  prediction.relative_work = lowered.seconds / keep_seconds;
  prediction.seconds = lowered.seconds;
  prediction.shares = lowered.shares;
  if (prediction.plan.name.empty()) prediction.plan.name = NameOf(prediction.shares);
  return prediction;
}

// What is known of a job's plans, as predictions.
class PlanPredictor {
 public:
  PlanPredictor(const PlanFacts& facts, const JobBytes& job, int layers)
      : facts_(facts), job_(job), layers_(layers) {}

  void Add(const Mix& mix) {
    if (!added_.insert(mix).second) return;
    const MixPrice price = facts_.space.Price(mix);
    Prediction& prediction = predictions_.emplace_back();
    prediction.plan = facts_.space.PlanOf(mix);
    prediction.bytes = BytesOf(mix, price);
    prediction.peak = facts_.space.PeakOf(mix);
    prediction.alignment = prediction.bytes.arena - prediction.peak.total();
    prediction.relative_work = price.seconds / facts_.keep_seconds;
    prediction.seconds = price.seconds;
    prediction.shares = facts_.space.SharesOf(mix);
    const std::optional<int> recomputed = facts_.space.RecomputedLayers(mix);
    prediction.plan.name =
        recomputed.has_value() ? RecomputeName(*recomputed, layers_) : NameOf(prediction.shares);
  }

  void AddRecomputePlans() {
    for (int k = 0; k <= layers_; ++k) Add(facts_.space.RecomputeMix(k));
  }

  // The frontier below so many bytes, where a plan with more bytes is always faster: evaluation may
  // need the more arena.
  void AddFrontier(const PlanList& list, int64_t below) {
    std::vector<std::pair<int64_t, const Mix*>> mixes;  // By falling bytes.
    for (const FrontierPoint& point : facts_.frontier) {
      const int64_t bytes = BytesOf(point.mix, point.price).total();
      const int64_t last = mixes.empty() ? below : mixes.back().first;
      if (bytes < last) mixes.push_back({bytes, &point.mix});
    }
    if (mixes.empty()) return;
    const auto add_within = [&](int64_t limit) {
      for (const auto& [bytes, mix] : mixes) {
        if (bytes <= limit) return Add(*mix);
      }
    };
    for (int64_t limit : list.limits) add_within(limit);
    const int64_t largest = mixes.front().first, smallest = mixes.back().first;
    const int64_t steps = static_cast<int64_t>(list.most_mixes) - 1;
    for (int64_t i = 0; i <= steps; ++i)
      add_within(smallest + (largest - smallest) / std::max<int64_t>(steps, 1) * i);
  }

  // Of the plans that were lowered in full those that take no more than `host_bytes` of the host
  // for their stashes, and that nothing beats.
  void AddLowered(int64_t host_bytes) {
    for (size_t i = 0; i < facts_.lowered.size(); ++i) {
      const LoweredPlan& lowered = facts_.lowered[i];
      if (lowered.host_bytes > host_bytes) continue;
      Prediction prediction = PredictionOf(lowered, job_, facts_.keep_seconds);
      const auto beats = [&](const Prediction& other) {
        return other.bytes.total() <= prediction.bytes.total() &&
               other.relative_work <= prediction.relative_work &&
               other.bytes.host <= prediction.bytes.host;
      };
      const bool beaten = std::any_of(predictions_.begin(), predictions_.end(), beats);
      if (!beaten || i < facts_.recompute_plans) predictions_.push_back(std::move(prediction));
    }
  }

  int64_t smallest() const {
    int64_t bytes = std::numeric_limits<int64_t>::max();
    for (const Prediction& each : predictions_) bytes = std::min(bytes, each.bytes.total());
    return bytes;
  }

  std::vector<Prediction> Take() { return std::move(predictions_); }

 private:
  Components BytesOf(const Mix& mix, const MixPrice& price) const {
    bool exact = true;
    for (size_t b = 0; job_.exact_arena() > 0 && b < mix.size(); ++b)
      exact = exact && IsExact(facts_.space.KindOf(b).choices[mix[b]].site_bytes);
    return job_.With(price.arena_bytes, exact);
  }

  const PlanFacts& facts_;
  const JobBytes& job_;
  const int layers_;
  std::set<Mix> added_;
  std::vector<Prediction> predictions_;
};

}  // namespace

absl::StatusOr<Prediction> Predict(const Program& program, const Plan& plan,
                                   const PredictOptions& options) {
  ASSIGN_OR_RETURN(const Tape keep, Lower(program, RecomputePlan(program, 0), options.lower));
  ASSIGN_OR_RETURN(const JobBytes job, JobBytes::Of(program, options));
  ASSIGN_OR_RETURN(const LoweredPlan lowered,
                   LowerPlan(program, SitesOf(program), plan, options.lower));
  return PredictionOf(lowered, job, SecondsOf(keep, options.lower.machine));
}

absl::StatusOr<std::vector<Prediction>> PredictPlans(const Program& program,
                                                     const PredictOptions& options,
                                                     const PlanList& list) {
  FormsAllowed allowed = {.fidelity = list.fidelity, .on_host = list.host_bytes > 0};
  const bool chain = IsChain(program), codes = list.fidelity == Fidelity::kApproximate;
  if (!chain) allowed.least_code_bits = kFewestCodeBits;
  ASSIGN_OR_RETURN(const JobBytes job, JobBytes::Of(program, options));
  const int layers = static_cast<int>(program.config.layers);
  ASSIGN_OR_RETURN(const std::shared_ptr<const PlanFacts> facts,
                   PlanFactsOf(program, options.lower, allowed));
  PlanPredictor predictor(*facts, job, layers);
  if (chain && list.recompute_plans) predictor.AddRecomputePlans();
  predictor.AddFrontier(list, std::numeric_limits<int64_t>::max());
  const int64_t smallest = predictor.smallest();  // Without the host's memory.
  predictor.AddLowered(list.host_bytes);
  std::vector<Prediction> predictions = predictor.Take();
  if (chain && codes) {  // What fewer bits save is for those whom more bits leave no plan.
    allowed = {.fidelity = list.fidelity, .least_code_bits = kFewestCodeBits};
    ASSIGN_OR_RETURN(const std::shared_ptr<const PlanFacts> fewer,
                     PlanFactsOf(program, options.lower, allowed));
    PlanPredictor smaller(*fewer, job, layers);
    smaller.AddFrontier(list, smallest);
    for (Prediction& prediction : smaller.Take()) predictions.push_back(std::move(prediction));
  }
  // Where that step takes more than plans that it measures, exact ones that those beat may be best.
  if (!facts->frontier.empty() && facts->frontier.back().price.arena_bytes < job.exact_arena()) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const PlanFacts> exact,
                     PlanFactsOf(program, options.lower, FormsAllowed()));
    PlanPredictor others(*exact, job, layers);
    others.AddFrontier(list, std::numeric_limits<int64_t>::max());
    for (Prediction& prediction : others.Take()) {
      const auto beats = [&](const Prediction& other) {
        return other.bytes.total() <= prediction.bytes.total() &&
               other.relative_work <= prediction.relative_work &&
               other.bytes.host <= prediction.bytes.host;
      };
      if (std::none_of(predictions.begin(), predictions.end(), beats))
        predictions.push_back(std::move(prediction));
    }
  }
  std::stable_sort(predictions.begin(), predictions.end(),
                   [](const Prediction& a, const Prediction& b) {
                     return std::pair(a.relative_work, a.bytes.total()) <
                            std::pair(b.relative_work, b.bytes.total());
                   });
  return predictions;
}

absl::Status Verify(const Program& program, const Prediction& prediction,
                    const PredictOptions& options) {
  ASSIGN_OR_RETURN(const JobBytes job, JobBytes::Of(program, options));
  ASSIGN_OR_RETURN(const Tape tape, Lower(program, prediction.plan, options.lower));
  const int64_t lowered = job.With(tape.arena_bytes, IsExact(prediction.shares)).total() +
                          job.SecondTeamBytes(prediction.plan);
  if (lowered == prediction.bytes.total()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("plan ", prediction.plan.name, " was priced at ",
                                          prediction.bytes.total(), " bytes and takes ", lowered));
}

int FastestThatFits(const std::vector<Prediction>& predictions, int64_t budget_bytes,
                    int64_t host_bytes) {
  int fastest = -1;
  for (size_t i = 0; i < predictions.size(); ++i) {
    const Components& bytes = predictions[i].bytes;
    if (bytes.total() > budget_bytes || bytes.host > host_bytes) continue;
    if (fastest < 0 ||
        predictions[i].relative_work < predictions[static_cast<size_t>(fastest)].relative_work)
      fastest = static_cast<int>(i);
  }
  return fastest;
}

}  // namespace snug::program
