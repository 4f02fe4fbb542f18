// Gradients are released, and the optimizer's state goes to the host, where a job gains by it.
#include "server/scheduler/auto_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "server/job/check_spec.h"
#include "server/scheduler/advice.h"
#include "server/scheduler/auto_sizes.h"
#include "server/scheduler/outlook.h"
#include "tests/server/plan/toy_config.h"

namespace snug::server {
namespace {

using v1::MemorySpec;

class AutoMemoryTest : public testing::Test {
 protected:
  AutoMemoryTest() {
    v1::TrainingSpec& training = *spec_.mutable_training();
    spec_.set_method(v1::JobSpec::METHOD_FULL);
    training.set_packing(false);
    training.set_max_seq_length(64);
    training.set_max_grad_norm(0.0);
    FillDefaults(spec_, 128);
  }

  CheckedJob Job() const {
    auto program = program::BuildProgram(config_, ModeOf(spec_)).value();
    return {.spec = spec_, .program = std::make_shared<const program::Program>(std::move(program))};
  }
  // The job's own plans where it says so itself, the fastest first.
  std::vector<v1::Plan> PlansWith(MemorySpec::Gradients gradients,
                                  MemorySpec::OptimizerState optimizer) {
    const v1::JobSpec open = spec_;
    spec_.mutable_memory()->set_gradients(gradients);
    spec_.mutable_memory()->set_optimizer(optimizer);
    const CheckedJob job = Job();
    spec_ = open;
    return PlansFor(*job.program, job.spec, {}, MachineOf(device_)).value();
  }
  int64_t FastestPeak(MemorySpec::Gradients gradients,
                      MemorySpec::OptimizerState optimizer = MemorySpec::OPTIMIZER_STATE_DEVICE) {
    return PlansWith(gradients, optimizer).front().peak_bytes();
  }
  int64_t SmallestPeak(MemorySpec::Gradients gradients,
                       MemorySpec::OptimizerState optimizer = MemorySpec::OPTIMIZER_STATE_DEVICE) {
    const std::vector<v1::Plan> plans = PlansWith(gradients, optimizer);
    return plans[static_cast<size_t>(SmallestOf(plans))].peak_bytes();
  }
  // Plans that offload are no reason for a size that nobody has asked for.
  int64_t SmallestPeakOfNothingOffloaded(MemorySpec::Gradients gradients,
                                         MemorySpec::OptimizerState optimizer) {
    std::pair<int64_t, int64_t> smallest = {INT64_MAX, INT64_MAX};  // By the host's bytes.
    for (const v1::Plan& plan : PlansWith(gradients, optimizer))
      smallest = std::min(smallest, {plan.host_bytes(), plan.peak_bytes()});
    return smallest.second;
  }
  // On a device of so many bytes.
  CheckedJob Chosen(int64_t bytes) {
    device_.capacity_bytes = bytes;
    CheckedJob job = Job();
    EXPECT_TRUE(FillAutoMemory({device_}, {}, job).ok());
    return job;
  }
  void ExpectChoice(int64_t bytes, MemorySpec::Gradients gradients,
                    MemorySpec::OptimizerState optimizer) {
    const CheckedJob job = Chosen(bytes);
    EXPECT_EQ(job.spec.memory().gradients(), gradients) << bytes;
    EXPECT_EQ(job.spec.memory().optimizer(), optimizer) << bytes;
    const program::Program same = program::BuildProgram(config_, ModeOf(job.spec)).value();
    EXPECT_EQ(job.program->optimizer_on_host, same.optimizer_on_host);
    for (size_t p = 0; p < same.parameters.size(); ++p)
      EXPECT_EQ(job.program->parameters[p].released, same.parameters[p].released);
  }

  // Of the fastest plan that fits; infinite: none does.
  double Seconds(int64_t bytes, MemorySpec::Gradients gradients) {
    const std::vector<v1::Plan> plans = PlansWith(gradients, MemorySpec::OPTIMIZER_STATE_DEVICE);
    const int fits = FirstThatFits(plans, bytes);
    return fits < 0 ? std::numeric_limits<double>::infinity()
                    : plans[static_cast<size_t>(fits)].step_seconds();
  }

  program::ModelConfig config_ = ToyConfig();
  v1::JobSpec spec_;
  Device device_{.name = "cpu:0", .capacity_bytes = int64_t{1} << 40, .threads = 2};
};

constexpr MemorySpec::Gradients kKept = MemorySpec::GRADIENTS_KEPT;
constexpr MemorySpec::Gradients kReleased = MemorySpec::GRADIENTS_RELEASED;
constexpr MemorySpec::OptimizerState kOnDevice = MemorySpec::OPTIMIZER_STATE_DEVICE;
constexpr MemorySpec::OptimizerState kOnHost = MemorySpec::OPTIMIZER_STATE_HOST;
constexpr MemorySpec::OptimizerState kOpen = MemorySpec::OPTIMIZER_STATE_UNSPECIFIED;

// Beside a CPU there is no other memory, so that the state's place is no choice.
TEST_F(AutoMemoryTest, GradientsAreReleasedWhereTheFastestPlanDoesNotFitWithThem) {
  const int64_t kept = FastestPeak(kKept), released = FastestPeak(kReleased);
  ASSERT_LT(released, kept);
  ExpectChoice(int64_t{1} << 40, kKept, kOnDevice);
  ExpectChoice(kept, kKept, kOnDevice);
  ASSERT_LT(SmallestPeak(kReleased), SmallestPeak(kKept));
  ExpectChoice(SmallestPeak(kReleased), kReleased, kOnDevice);
  // What is refused is what needs the least.
  ExpectChoice(SmallestPeak(kReleased) - 1, kReleased, kOnDevice);
  spec_.mutable_memory()->set_gradients(MemorySpec::GRADIENTS_AUTO);
  ExpectChoice(SmallestPeak(kReleased), kReleased, kOnDevice);
}

// A bound holds what is measured, which a gradient that is released cannot be. Nothing is measured
// under exact plans.
TEST_F(AutoMemoryTest, AGradientThatHasABoundIsKept) {
  spec_.mutable_memory()->set_drift_bound(0.1);
  const int64_t bytes = SmallestPeak(kReleased);
  ASSERT_LT(bytes, SmallestPeak(kKept));
  ExpectChoice(bytes, kReleased, kOnDevice);
  spec_.mutable_memory()->set_fidelity(v1::FIDELITY_APPROXIMATE);
  ExpectChoice(bytes, MemorySpec::GRADIENTS_UNSPECIFIED, kOpen);  // As where no choice is left.
}

// Where both fit it is what the step gains by it: more than nothing.
TEST_F(AutoMemoryTest, GradientsAreReleasedWhereTheStepIsFasterForIt) {
  config_.layers = 12;
  const int64_t least = SmallestPeak(kKept), most = FastestPeak(kKept);
  int released = 0;
  for (int part = 0; part <= 20; ++part) {
    const int64_t bytes = least + (most - least) * part / 20;
    const bool gains = Seconds(bytes, kReleased) < 0.98 * Seconds(bytes, kKept);
    if (!gains) continue;
    ExpectChoice(bytes, kReleased, kOnDevice);
    ++released;
  }
  EXPECT_GT(released, 0);
}

TEST_F(AutoMemoryTest, WhatTheJobSaysStands) {
  const int64_t released = FastestPeak(kReleased);
  spec_.mutable_memory()->set_gradients(kKept);
  ExpectChoice(released, kKept, kOpen);
  EXPECT_FALSE(LeavesMemoryOpen({device_}, Job()));
}

// As CheckSpec would refuse it.
TEST_F(AutoMemoryTest, GradientsThatAreClippedOrAccumulatedAreKept) {
  const int64_t released = FastestPeak(kReleased);
  spec_.mutable_training()->set_max_grad_norm(1.0);
  ExpectChoice(released, MemorySpec::GRADIENTS_UNSPECIFIED, kOpen);
  spec_.mutable_training()->clear_max_grad_norm();
  ExpectChoice(released, MemorySpec::GRADIENTS_UNSPECIFIED, kOpen);
  spec_.mutable_training()->set_max_grad_norm(0.0);
  spec_.mutable_training()->set_gradient_accumulation_steps(2);
  ExpectChoice(released, MemorySpec::GRADIENTS_UNSPECIFIED, kOpen);
}

// A GPU's host is slower than to run some layers again, so what the device can do it does.
TEST_F(AutoMemoryTest, TheOptimizersStateGoesToTheHostWhereNothingFitsOtherwise) {
  device_.name = "gpu:0";
  device_.host_bytes = int64_t{1} << 30;
  spec_.mutable_training()->set_max_grad_norm(1.0);
  config_.mlp_width = 4096;  // Moments of many pages of a GPU.
  RowLengths rows;           // As long as where nothing is known of them.
  rows.train.Add(64, 100);
  const int64_t smallest = SmallestPeak(kKept);
  ASSERT_LT(SmallestPeak(kKept, kOnHost), smallest);
  ExpectChoice(int64_t{1} << 40, kKept, kOnDevice);
  ExpectChoice(smallest - 1, kKept, kOnHost);
  EXPECT_TRUE(CheckFits({device_}, Job(), rows).ok());
  // Within the room that there is, or that the job gives.
  spec_.mutable_memory()->set_host_budget("1000");
  ExpectChoice(smallest - 1, kKept, kOnDevice);
  EXPECT_FALSE(CheckFits({device_}, Job(), rows).ok());
  spec_.mutable_memory()->clear_host_budget();
  device_.host_bytes = 1000;
  ExpectChoice(smallest - 1, kKept, kOnDevice);
  spec_.mutable_memory()->set_host_budget("64GiB");
  ExpectChoice(smallest - 1, kKept, kOnDevice);
  spec_.mutable_memory()->clear_host_budget();
  device_.host_bytes = 0;
  ExpectChoice(smallest - 1, MemorySpec::GRADIENTS_UNSPECIFIED, kOpen);
}

// Sizes that are open are looked for where they can be had, not where nothing fits.
TEST_F(AutoMemoryTest, OpenSizesAreThoseOfTheMemoryThatTheyNeed) {
  device_.name = "gpu:0";
  device_.host_bytes = int64_t{1} << 30;
  config_.mlp_width = 4096;
  spec_.mutable_training()->set_max_grad_norm(1.0);
  spec_.mutable_training()->set_per_device_train_batch_size(1);
  const int64_t whole = SmallestPeakOfNothingOffloaded(kKept, kOnHost);
  spec_.mutable_training()->set_max_seq_length(2);
  ASSERT_GT(SmallestPeak(kKept), whole);  // On the device not even the shortest fits.
  device_.capacity_bytes = whole;
  spec_.mutable_training()->set_max_seq_length(kAuto);
  CheckedJob job = Job();
  ASSERT_TRUE(FillAutoLength({device_}, job).ok());
  EXPECT_GE(job.spec.training().max_seq_length(), 64);
  EXPECT_EQ(job.spec.memory().optimizer(), kOnHost);
  spec_.mutable_training()->set_max_seq_length(2);
  spec_.mutable_training()->set_per_device_train_batch_size(kAuto);
  job = Job();
  ASSERT_TRUE(FillAutoBatch({device_}, {}, job).ok());
  EXPECT_GE(job.spec.training().per_device_train_batch_size(), 32);
  EXPECT_EQ(job.spec.memory().optimizer(), kOnHost);
}

// Another device that has room for all of it, and is slower, is no reason to leave the fast one.
TEST_F(AutoMemoryTest, TheFastestDeviceDecides) {
  config_.mlp_width = 4096;
  Device fast = device_;
  fast.name = "gpu:0";
  fast.rates = program::MachineRates();
  device_ = fast;
  fast.capacity_bytes = SmallestPeak(kReleased);
  ASSERT_LT(fast.capacity_bytes, SmallestPeak(kKept));
  Device slow{.name = "cpu:0", .capacity_bytes = int64_t{1} << 40};
  const program::Rates rates = program::Rates::Of(1e9, 1e8);
  slow.rates = program::MachineRates{.f32 = rates, .bf16 = rates};
  for (const bool first : {false, true}) {
    CheckedJob job = Job();
    const std::vector<Device> devices =
        first ? std::vector<Device>{slow, fast} : std::vector<Device>{fast, slow};
    ASSERT_TRUE(FillAutoMemory(devices, {}, job).ok());
    EXPECT_EQ(job.spec.memory().gradients(), kReleased);
  }
}

}  // namespace
}  // namespace snug::server
