#include "worker/program/planning/plan_memo.h"

#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "proto/snug/status_macros.h"
#include "worker/program/planning/block_cost.h"
#include "worker/program/planning/form_plans.h"
#include "worker/program/planning/host_plans.h"

namespace snug::program {
namespace {

// The facts' arguments, written one behind another: equal texts, equal facts.
class Fingerprint {
 public:
  template <typename... Numbers>
  void Add(Numbers... numbers) {
    (AddOne(numbers), ...);
  }
  // All of it, whatever coordinates a key gets.
  void AddKey(const TapeKey& key) {
    static_assert(std::has_unique_object_representations_v<TapeKey>);
    text_.append(reinterpret_cast<const char*>(&key), sizeof(key));
  }
  void AddList(const std::vector<int>& list) {
    Add(list.size());
    for (int number : list) Add(number);
  }
  std::string Take() { return std::move(text_); }

 private:
  template <typename Number>
  void AddOne(Number number) {
    static_assert(std::is_arithmetic_v<Number> || std::is_enum_v<Number>);
    text_.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }

  std::string text_;
};

void AddAttributes(const OpAttributes& attributes, Fingerprint& text) {
  // As many names as there are fields: a new one does not compile until it is here.
  const auto& [heads, kv_heads, head_width, rotary_width, epsilon, scale, table_scale, dropout,
               patch_width, za_column, rank, smoothing, softcap, window, offset, bias, centred,
               causal, distances, order, order_before, whole_documents, query_rows, key_rows, ids,
               row, rows, local, selected, loss, activation, quantization, code_bits,
               with_replacement] = attributes;
  text.Add(heads, kv_heads, head_width, rotary_width, epsilon, scale, table_scale, dropout,
           patch_width, za_column, rank, smoothing, softcap, window, offset, bias, centred, causal,
           distances.buckets, distances.farthest, whole_documents, query_rows, key_rows, ids, row,
           rows, local, selected, loss, activation, quantization, code_bits, with_replacement);
  for (const PatchOrder& each : {order, order_before})
    text.Add(each.side, each.window, each.shift, each.in_fours);
}

void AddType(const BlockType& type, Fingerprint& text) {
  text.AddList(type.inputs);
  text.AddList(type.outputs);
  text.Add(type.parameter_slots, type.values.size(), type.ops.size());
  for (const Value& value : type.values)
    text.Add(value.width, value.dtype, value.companion, value.rows);
  for (const Op& op : type.ops) {
    text.Add(op.code);
    text.AddList(op.inputs);
    text.AddList(op.outputs);
    text.AddList(op.parameters);
    AddAttributes(op.attributes, text);
  }
}

std::string FingerprintOf(const Program& program, const LowerOptions& options,
                          const FormsAllowed& allowed) {
  Fingerprint text;
  text.Add(allowed.fidelity, allowed.on_host, allowed.least_code_bits);
  text.AddKey(options.key);
  for (const double rate : options.machine.rates.per_second) text.Add(rate);
  text.Add(options.machine.threads, options.machine.cpu, options.rows_of_head(), program.compute,
           program.config.vocabulary, program.types.size());
  for (const BlockType& type : program.types) AddType(type, text);
  for (const Block& block : program.blocks) {
    text.Add(block.type, block.layer >= 0);
    text.AddList(block.inputs);
    text.AddList(block.outputs);
    for (int index : block.parameters) {
      const Parameter& parameter = program.parameters[static_cast<size_t>(index)];
      // A gradient that is released lies in the arena.
      text.Add(parameter.trainable, parameter.released ? parameter.elements() : int64_t{0});
    }
  }
  return text.Take();
}

// Facts by their fingerprints. Whoever asks for what another works out waits for it.
class Memo {
 public:
  // Null: they are not known, and the caller is to work them out, Add them if there are some, and
  // say End in any case.
  std::shared_ptr<const PlanFacts> FindOrBegin(const std::string& fingerprint) {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return !begun_.contains(fingerprint); });
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (it->fingerprint != fingerprint) continue;
      entries_.splice(entries_.begin(), entries_, it);
      return it->facts;
    }
    begun_.insert(fingerprint);
    return nullptr;
  }

  void Add(const std::string& fingerprint, std::shared_ptr<const PlanFacts> facts) {
    const std::lock_guard lock(mutex_);
    entries_.push_front({fingerprint, std::move(facts)});
    if (entries_.size() > kMostPlanFacts) entries_.pop_back();
  }

  // Where nothing was added, whoever waits works them out for himself.
  void End(const std::string& fingerprint) {
    const std::lock_guard lock(mutex_);
    begun_.erase(fingerprint);
    ended_.notify_all();
  }

 private:
  struct Entry {
    std::string fingerprint;
    std::shared_ptr<const PlanFacts> facts;
  };

  std::mutex mutex_;
  std::condition_variable ended_;
  std::set<std::string> begun_;
  std::list<Entry> entries_;  // The last asked for first.
};

Memo& TheMemo() {
  static Memo* memo = new Memo;  // Never destroyed: threads may plan while the process ends.
  return *memo;
}

std::map<Stash, double> SharesOf(const Program& program, const std::vector<Site>& sites,
                                 const Plan& plan) {
  std::map<Stash, int64_t> bytes;
  for (size_t b = 0; b < program.blocks.size(); ++b) {
    const int layer = program.blocks[b].layer;
    if (layer < 0) continue;
    const int recipe = plan.layer_recipe[static_cast<size_t>(layer)];
    for (const auto& [stash, more] :
         SiteBytes(program, sites, static_cast<int>(b), plan.recipes[static_cast<size_t>(recipe)]))
      bytes[stash] += more;
  }
  return SharesOf(bytes);
}

absl::StatusOr<PlanFacts> WorkOut(const Program& program, const LowerOptions& options,
                                  const FormsAllowed& allowed) {
  PlanFacts facts;
  std::vector<Plan> plans;
  if (IsChain(program)) {
    ASSIGN_OR_RETURN(facts.space, PlanSpace::Make(program, options, allowed));
    facts.frontier = FrontierOf(facts.space);
    facts.keep_seconds = facts.space.Price(facts.space.RecomputeMix(0)).seconds;
  } else {  // Blocks that read more than the one before are not priced alone.
    for (int k = 0; k <= static_cast<int>(program.config.layers); ++k)
      plans.push_back(RecomputePlan(program, k));
    facts.recompute_plans = plans.size();
  }
  for (Plan& plan : FormPlans(program, allowed)) plans.push_back(std::move(plan));
  if (allowed.on_host && !facts.frontier.empty()) {
    ASSIGN_OR_RETURN(std::vector<Plan> mixes, HostPlans(program, facts.space, options));
    for (Plan& plan : mixes) plans.push_back(std::move(plan));
  }
  const std::vector<Site> sites = plans.empty() ? std::vector<Site>() : SitesOf(program);
  for (const Plan& plan : plans) {
    ASSIGN_OR_RETURN(LoweredPlan lowered, LowerPlan(program, sites, plan, options));
    const double seconds = lowered.seconds;
    facts.lowered.push_back(std::move(lowered));
    if (options.machine.cpu) continue;  // Two streams share its cores: nothing is gained.
    const std::optional<Plan> ahead = RecoveredAhead(plan);
    if (!ahead.has_value()) continue;
    ASSIGN_OR_RETURN(LoweredPlan beside, LowerPlan(program, sites, *ahead, options));
    if (beside.seconds <= (1.0 - kLeastGainAhead) * seconds)
      facts.lowered.push_back(std::move(beside));
  }
  if (facts.frontier.empty()) facts.keep_seconds = facts.lowered.front().seconds;
  return facts;
}

}  // namespace

absl::StatusOr<LoweredPlan> LowerPlan(const Program& program, const std::vector<Site>& sites,
                                      const Plan& plan, const LowerOptions& options) {
  ASSIGN_OR_RETURN(const Tape tape, Lower(program, plan, options));
  const Replay replay = ReplayTape(tape);
  return LoweredPlan{.plan = plan,
                     .arena_bytes = tape.arena_bytes,
                     .host_bytes = replay.host_bytes,
                     .peak = replay.peak,
                     .seconds = SecondsOf(tape, options.machine),
                     .shares = SharesOf(program, sites, plan)};
}

absl::StatusOr<std::shared_ptr<const PlanFacts>> PlanFactsOf(const Program& program,
                                                             const LowerOptions& options,
                                                             const FormsAllowed& allowed) {
  const std::string fingerprint = FingerprintOf(program, options, allowed);
  if (std::shared_ptr<const PlanFacts> known = TheMemo().FindOrBegin(fingerprint)) return known;
  // Also where memory ends on the way: nobody is to wait for ever.
  const absl::Cleanup end = [&fingerprint] { TheMemo().End(fingerprint); };
  ASSIGN_OR_RETURN(PlanFacts found, WorkOut(program, options, allowed));
  const auto facts = std::make_shared<const PlanFacts>(std::move(found));
  TheMemo().Add(fingerprint, facts);
  return facts;
}

}  // namespace snug::program
