// What a GPU is asked for beside the work of a step or a token: copies from the host and to it are
// a batch's and fills are a tensor's, however many layers, documents and gaps between trained rows
// there are.
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/checkpoint/testbed.h"
#include "tests/worker/execute/gpu/emulated_runtime.h"
#include "tests/worker/execute/gpu/test_gpu.h"
#include "tests/worker/execute/gpu/uploaded_run.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/program/models.h"
#include "tests/worker/train/toy_job.h"
#include "worker/program/lower.h"
#include "worker/program/planning/predict.h"
#include "worker/train/batch_buffers.h"
#include "worker/train/trainer.h"

namespace snug::train {
namespace {

using execute::EmulatedRuntime;
using execute::GpuDevice;
using execute::OpenTestGpu;
using program::FullMode;
using program::LoraMode;

const EmulatedRuntime& RuntimeOf(GpuDevice& gpu) {
  return static_cast<const EmulatedRuntime&>(gpu.runtime());
}

// Between the host and the GPU.
struct HostCopies {
  int64_t of_step = 0;
  double of_token = 0.0;  // Of an answer.
};

HostCopies CopiesWith(int64_t layers) {
  const checkpoint::TempFolder folder;
  ToyModel model;
  model.sizes.layers = layers;
  WriteModel(folder / "model", model);
  WriteData(folder / "data", {7, 12, 3, 9}, model.sizes.vocabulary);
  WritePrompts(folder / "prompts.json", {3}, model.sizes.vocabulary);
  TrainingOptions training = ToyTraining();
  training.samples = {.max_new_tokens = 4};
  AttemptOptions attempt = ToyAttempt(folder.path(), FullMode(), training);
  attempt.prompts_file = folder / "prompts.json";
  attempt.device = "gpu:0";
  const auto gpu = OpenTestGpu();
  const auto trainer = Trainer::Create(attempt, *gpu);
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  if (!trainer.ok()) return {};
  const EmulatedRuntime& runtime = RuntimeOf(*gpu);
  const int64_t before = runtime.host_copies();
  EXPECT_TRUE((*trainer)->AccumulateGradients().ok());
  const int64_t of_step = runtime.host_copies() - before;
  const auto samples = (*trainer)->AnswerPrompts();
  EXPECT_TRUE(samples.ok()) << samples.status();
  if (!samples.ok() || samples->front().tokens.empty()) return {};
  const auto of_tokens = static_cast<double>(runtime.host_copies() - before - of_step);
  return {of_step, of_tokens / static_cast<double>(samples->front().tokens.size())};
}

TEST(GpuFixedWorkTest, LayersCopyNothing) {
  const HostCopies shallow = CopiesWith(1), deep = CopiesWith(4);
  EXPECT_GT(shallow.of_step, 0);
  EXPECT_EQ(deep.of_step, shallow.of_step);
  EXPECT_GT(shallow.of_token, 0.0);
  EXPECT_EQ(deep.of_token, shallow.of_token);
}

struct Step {
  int64_t fills = 0;
  double loss = 0.0;
  std::vector<float> gradients;
};

// One document, every third of whose rows is not trained; the head takes so many at a time.
Step StepOf(int64_t tokens, int32_t head_rows) {
  const auto gpu = OpenTestGpu();
  execute::ToyRun run(
      *BuildProgram(program::LlamaShape({2, 32, 4, 2, 48, 61}), LoraMode({"q_proj", "lm_head"})),
      {tokens});
  execute::UploadedRun uploaded(run, *gpu);
  const program::Tape tape =
      *program::Lower(run.program(), RecomputePlan(run.program(), 0),
                      {.key = run.key(), .machine = gpu->machine(), .head_rows = head_rows});
  const int64_t before = RuntimeOf(*gpu).fills();
  const auto loss = uploaded.RunInArena(tape);
  EXPECT_TRUE(loss.ok()) << loss.status();
  return {RuntimeOf(*gpu).fills() - before, loss.value_or(0.0), uploaded.Gradients()};
}

// Gradients of z, and of the adapter's za, are 0 between the trained rows: by one launch for each.
TEST(GpuFixedWorkTest, GapsBetweenTrainedRowsAreFilledAtOnce) {
  const Step few = StepOf(6, 1024), many = StepOf(60, 1024);
  EXPECT_EQ(many.fills, few.fills);
  // In passes over a few rows each, of which the last one does it.
  const Step in_passes = StepOf(60, 7);
  EXPECT_EQ(in_passes.fills, few.fills);
  EXPECT_NEAR(in_passes.loss, many.loss, 1e-5 * many.loss);
  ASSERT_EQ(in_passes.gradients.size(), many.gradients.size());
  for (size_t i = 0; i < many.gradients.size(); ++i)
    EXPECT_NEAR(in_passes.gradients[i], many.gradients[i], 1e-5) << i;
}

std::vector<char> Downloaded(execute::Device& device, const void* from, int64_t bytes) {
  std::vector<char> there(static_cast<size_t>(bytes));
  device.Copy(there.data(), from, bytes, 0);
  return there;
}

template <typename T>
std::vector<char> BytesOf(const std::vector<T>& values) {
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  return {bytes, bytes + values.size() * sizeof(T)};
}

// A batch brings with it what each layer's attention would make of its offsets, within its bytes.
TEST(GpuFixedWorkTest, ABatchHasTheArraysThatItsLayersShare) {
  const auto gpu = OpenTestGpu();
  const program::Program program = *BuildProgram(
      program::T5Shape(/*gated=*/true, {2, 8, 2, 2, 12, 16}, /*decoder_layers=*/1), FullMode());
  const program::TapeKey key = {
      .tokens = 8, .documents = 3, .longest_document = 8, .source_tokens = 8, .longest_source = 8};
  auto buffers = BatchBuffers::Allocate(program, key, *gpu);
  ASSERT_TRUE(buffers.ok()) << buffers.status();
  EXPECT_EQ(buffers->held_bytes(), program::BatchBytes(program, key, gpu->machine()));
  EXPECT_EQ(program::BatchBytes(program, key, gpu->machine()) - program::BatchBytes(program, key),
            2 * 64);
  const std::vector<int32_t> ids = {1, 2, 3}, source = {4, 5, 6, 7, 8};
  const auto batch = buffers->FillTokens(ids, source, /*past=*/0);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(Downloaded(*gpu, batch->device_offsets32, 2 * 4), BytesOf<int32_t>({0, 3}));
  EXPECT_EQ(Downloaded(*gpu, batch->device_source_counts, 8), BytesOf<int64_t>({5}));
}

}  // namespace
}  // namespace snug::train
