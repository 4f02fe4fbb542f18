// What a node measures as a context has run each kernel of attention that a decoder's tape
// launches, and each kind of product: on an emulated GPU, which knows them by their addresses.
#include "worker/train/load_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "tests/worker/execute/gpu/emulated_runtime.h"
#include "tests/worker/execute/gpu/uploaded_run.h"
#include "tests/worker/program/models.h"
#include "worker/execute/gpu/gpu_device.h"

namespace snug::train {
namespace {

using execute::EmulatedRuntime;
using execute::GpuDevice;
using execute::OpFunctions;
using execute::OpRun;
using program::DType;

using Kernels = std::set<const void*>;
constexpr auto kAttention = static_cast<size_t>(program::OpCode::kAttention);

const Kernels& LaunchedOn(execute::Device& device) {
  return static_cast<EmulatedRuntime&>(static_cast<GpuDevice&>(device).runtime()).kernels();
}

// Those that attention was the first to launch.
Kernels& OfAttention() {
  static Kernels kernels;
  return kernels;
}

template <void (*OpFunctions::*kFunction)(const OpRun&)>
void RunNoted(const OpRun& run) {
  const Kernels before = LaunchedOn(*run.device);
  (execute::OpFunctionsOfKernels()[kAttention].*kFunction)(run);
  const Kernels& now = LaunchedOn(*run.device);
  std::set_difference(now.begin(), now.end(), before.begin(), before.end(),
                      std::inserter(OfAttention(), OfAttention().end()));
}

const execute::OpFunctionTable& NotedFunctions() {
  static const execute::OpFunctionTable kFunctions = [] {
    execute::OpFunctionTable functions = execute::OpFunctionsOfKernels();
    functions[kAttention] = {&RunNoted<&OpFunctions::forward>, &RunNoted<&OpFunctions::backward>};
    return functions;
  }();
  return kFunctions;
}

// Types of operands and result, and which operand is transposed.
using Product = std::tuple<DType, DType, bool, bool>;

class NotingGpu final : public GpuDevice {
 public:
  NotingGpu()
      : GpuDevice("gpu:0", /*threads=*/2, std::make_unique<EmulatedRuntime>(int64_t{1} << 30),
                  NotedFunctions()) {
    OfAttention().clear();
  }
  void Multiply(const execute::GemmCall& call, int stream) override {
    products.emplace(call.dtype, call.c_dtype, call.a_transposed, call.b_transposed);
    GpuDevice::Multiply(call, stream);
  }
  std::set<Product> products;
};

// By attention of a step with heads of that width and a batch that small steps have not.
Kernels AttentionOf(int64_t head_width, DType compute) {
  NotingGpu gpu;
  program::ModelConfig config = program::LlamaShape({2, 4 * head_width, 4, 2, 72, 61});
  config.window = 3;
  config.sliding = {true, false};
  execute::ToyRun run(*program::BuildProgram(config, program::FullMode(compute)), {7, 1, 12});
  execute::UploadedRun uploaded(run, gpu);
  const auto loss = uploaded.RunInArena(uploaded.Lower(RecomputePlan(run.program(), 0)));
  EXPECT_TRUE(loss.ok()) << loss.status();
  return OfAttention();
}

Kernels Loaded() {
  NotingGpu gpu;
  const absl::Status status = RunSmallSteps(gpu);
  EXPECT_TRUE(status.ok()) << status;
  return LaunchedOn(gpu);
}

TEST(LoadKernelsTest, AttentionLaunchesNoKernelThatIsNotLoaded) {
  const Kernels loaded = Loaded();
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    std::set<Kernels> different;
    for (const int64_t head_width : {40, 64, 72, 256}) {
      const Kernels launched = AttentionOf(head_width, compute);
      EXPECT_TRUE(std::includes(loaded.begin(), loaded.end(), launched.begin(), launched.end()))
          << head_width;
      different.insert(launched);
    }
    EXPECT_EQ(different.size(), 3u);  // Else one width would have been enough.
  }
}

TEST(LoadKernelsTest, EachKindOfProductRunsInEachType) {
  NotingGpu gpu;
  const int64_t sides[] = {8, 24};
  const absl::Status status = RunProducts(gpu, sides);
  ASSERT_TRUE(status.ok()) << status;
  std::set<Product> all;
  for (const DType of : {DType::kF32, DType::kBF16})
    for (const DType into : {DType::kF32, DType::kBF16})
      for (const auto& [a, b] : {std::pair{false, false}, {false, true}, {true, false}})
        all.emplace(of, into, a, b);
  EXPECT_THAT(gpu.products, testing::ContainerEq(all));
  EXPECT_EQ(gpu.allocator().usage().current_bytes, 0);
}

}  // namespace
}  // namespace snug::train
