// Lowering and replay of an 80-layer Llama (the shape of 70B, 16,384 tokens) with 1, 2, 4 and 80
// different recipes, and planning it: at most 50 ms the first time, and 1 ms for all plans of a job
// from then on. Measures the pure functions only; no test passes or fails by it.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "tests/worker/program/models.h"
#include "worker/program/lower.h"
#include "worker/program/planning/frontier.h"
#include "worker/program/planning/plan_memo.h"
#include "worker/program/planning/predict.h"
#include "worker/program/replay.h"

namespace snug::program {
namespace {

constexpr TapeKey kKey = {.tokens = 16384, .documents = 4, .longest_document = 4096};

// Anything that fails here is an error of the program itself: say it and stop.
template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::cerr << value.status() << "\n";
  std::abort();
}

const Program& Llama70BLora() {
  static const Program* program =
      new Program(OrDie(BuildProgram(Llama70B(), LoraMode({"all-linear"}, DType::kBF16))));
  return *program;
}

Plan PlanWith(int recipes) {
  std::mt19937 random(1);
  if (recipes == 1) return RecomputePlan(Llama70BLora(), 0);
  return RandomPlan(Llama70BLora(), recipes, random);
}

LowerOptions Options() { return {.key = kKey, .machine = {}, .training = true}; }

void BM_Lower80Layers(benchmark::State& state) {
  const Plan plan = PlanWith(static_cast<int>(state.range(0)));
  size_t instructions = 0;
  for (auto _ : state) {
    const Tape tape = OrDie(Lower(Llama70BLora(), plan, Options()));
    instructions = tape.instructions.size();
    benchmark::DoNotOptimize(tape.arena_bytes);
  }
  state.counters["instructions"] = static_cast<double>(instructions);
}
BENCHMARK(BM_Lower80Layers)->Arg(1)->Arg(2)->Arg(4)->Arg(80)->Unit(benchmark::kMillisecond);

void BM_Replay80Layers(benchmark::State& state) {
  const Plan plan = PlanWith(static_cast<int>(state.range(0)));
  const Tape tape = OrDie(Lower(Llama70BLora(), plan, Options()));
  for (auto _ : state) benchmark::DoNotOptimize(ReplayTape(tape));
}
BENCHMARK(BM_Replay80Layers)->Arg(1)->Arg(4)->Unit(benchmark::kMillisecond);

// What a daemon does at a job's first plan: the recipes of its blocks, and the frontier; where the
// gradients are to be exact, without bias, and as near as codes are.
void BM_FirstPlans80Layers(benchmark::State& state) {
  const FormsAllowed allowed = {.fidelity = static_cast<Fidelity>(state.range(0))};
  size_t points = 0, choices = 0;
  for (auto _ : state) {
    const PlanSpace space = OrDie(PlanSpace::Make(Llama70BLora(), Options(), allowed));
    points = FrontierOf(space).size();
    choices = space.KindOf(1).choices.size();
  }
  state.counters["points"] = static_cast<double>(points);
  state.counters["choices"] = static_cast<double>(choices);
}
BENCHMARK(BM_FirstPlans80Layers)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

// All of it where plans may offload: beside an H100, whose copies hide behind its computing. No key
// comes again, so that nothing is remembered.
void BM_FirstPlansOnHost80Layers(benchmark::State& state) {
  LowerOptions options = Options();
  options.machine = {.cpu = false, .rates = Rates::Of(6e14, 2.7e12)};
  size_t lowered = 0;
  for (auto _ : state) {
    ++options.key.tokens;
    lowered = OrDie(PlanFactsOf(Llama70BLora(), options, {.on_host = true}))->lowered.size();
  }
  state.counters["lowered"] = static_cast<double>(lowered);
}
BENCHMARK(BM_FirstPlansOnHost80Layers)->Unit(benchmark::kMillisecond);

// ... and at each later one, also for another budget: keep, "recompute k of 80" and the frontier.
void BM_PlansAgain80Layers(benchmark::State& state) {
  PredictOptions options;
  options.lower = Options();
  size_t plans = 0;
  for (auto _ : state)
    plans = OrDie(PredictPlans(Llama70BLora(), options, {.limits = {int64_t{1} << 38}})).size();
  state.counters["plans"] = static_cast<double>(plans);
}
BENCHMARK(BM_PlansAgain80Layers)->Unit(benchmark::kMillisecond);

// The deepest model that a config.json may have is 1,024 layers: all of planning grows as they do.
Program Deep(int64_t layers) {
  ModelConfig config = Llama70B();
  config.layers = layers;
  return OrDie(BuildProgram(config, LoraMode({"all-linear"}, DType::kBF16)));
}

void Layers(benchmark::internal::Benchmark* benchmark) {
  benchmark->RangeMultiplier(2)->Range(128, 1024)->Unit(benchmark::kMillisecond);
}

void BM_ProgramOfLayers(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Deep(state.range(0)).blocks.size());
}
BENCHMARK(BM_ProgramOfLayers)->Apply(Layers);

// A plan that is spelled out, lowered and replayed.
void BM_PredictLayers(benchmark::State& state) {
  const Program program = Deep(state.range(0));
  PredictOptions options;
  options.lower = Options();
  const Plan plan = RecomputePlan(program, static_cast<int>(state.range(0)) / 2);
  for (auto _ : state) benchmark::DoNotOptimize(OrDie(Predict(program, plan, options)).seconds);
}
BENCHMARK(BM_PredictLayers)->Apply(Layers);

void BM_PinnedPlanOfLayers(benchmark::State& state) {
  const Program program = Deep(state.range(0));
  for (auto _ : state)
    benchmark::DoNotOptimize(OrDie(PinnedPlan(program, {{"*", Stash::kRecompute}})).recipes.size());
}
BENCHMARK(BM_PinnedPlanOfLayers)->Apply(Layers);

void BM_FirstPlansOfLayers(benchmark::State& state) {
  const Program program = Deep(state.range(0));
  for (auto _ : state) {
    const PlanSpace space = OrDie(PlanSpace::Make(program, Options()));
    benchmark::DoNotOptimize(FrontierOf(space).size());
  }
}
BENCHMARK(BM_FirstPlansOfLayers)->Apply(Layers);

// ... and the plans that a job is shown, from what is known by then.
void BM_PlansAgainOfLayers(benchmark::State& state) {
  const Program program = Deep(state.range(0));
  PredictOptions options;
  options.lower = Options();
  for (auto _ : state) {
    const PlanList list = {.recompute_plans = false, .limits = {int64_t{1} << 40}};
    benchmark::DoNotOptimize(OrDie(PredictPlans(program, options, list)).size());
  }
}
BENCHMARK(BM_PlansAgainOfLayers)->Apply(Layers);

}  // namespace
}  // namespace snug::program
