// A deep model is planned in work that grows as its layers do: 1,024 of them are what a config.json
// may have, and what a few jobs ask for must not stop a daemon. Work is counted by what is
// allocated, which is the same in every run; tests/bench/program_benchmark.cc has the time.
#include <cstdlib>
#include <new>

#include "gtest/gtest.h"
#include "tests/worker/program/models.h"
#include "worker/program/lower.h"
#include "worker/program/planning/predict.h"
#include "worker/program/replay.h"

namespace {

size_t allocated = 0;  // Bytes, ever.

void* Allocate(size_t bytes) {
  allocated += bytes;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void* operator new[](size_t bytes) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace snug::program {
namespace {

constexpr int kShallow = 128, kDeep = 1024;
constexpr double kRatio = static_cast<double>(kDeep) / kShallow;
// Twice as much for each layer would be no growth in the square, which gives eight times as much.
constexpr double kMostRatio = 1.5 * kRatio;

Program Deep(int layers) {
  ModelConfig config = Llama70B();
  config.layers = layers;
  return *BuildProgram(config, LoraMode({"all-linear"}, DType::kBF16));
}

PredictOptions Options() {
  PredictOptions options;
  options.lower = {.key = {.tokens = 4096, .documents = 4, .longest_document = 1024},
                   .machine = {},
                   .training = true};
  return options;
}

// What a piece of work allocates.
template <typename Work>
double BytesOf(const Work& work) {
  const size_t before = allocated;
  work();
  return static_cast<double>(allocated - before);
}

TEST(LinearTest, AProgramGrowsAsItsLayers) {
  const double shallow = BytesOf([] { Deep(kShallow); });
  EXPECT_LT(BytesOf([] { Deep(kDeep); }), kMostRatio * shallow);
}

TEST(LinearTest, LoweringAndReplayGrowAsTheLayers) {
  double bytes[2] = {};
  for (const int layers : {kShallow, kDeep}) {
    const Program program = Deep(layers);
    const Plan plan = RecomputePlan(program, layers / 2);
    bytes[layers == kDeep] = BytesOf([&] { ReplayTape(*Lower(program, plan, Options().lower)); });
  }
  EXPECT_LT(bytes[1], kMostRatio * bytes[0]);
}

// All plans that a job is shown: each is a plan of its own for every block, so the list is counted
// by plan.
TEST(LinearTest, AllPlansOfAJobGrowAsTheLayers) {
  double bytes[2] = {};
  for (const int layers : {kShallow, kDeep}) {
    const Program program = Deep(layers);
    size_t plans = 0;
    const double all = BytesOf([&] {
      const PlanList list = {.recompute_plans = false, .limits = {int64_t{1} << 40}};
      plans = PredictPlans(program, Options(), list)->size();
    });
    ASSERT_GT(plans, 1u);
    bytes[layers == kDeep] = all / static_cast<double>(plans);
  }
  EXPECT_LT(bytes[1], kMostRatio * bytes[0]);
}

}  // namespace
}  // namespace snug::program
