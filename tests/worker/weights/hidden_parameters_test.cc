// Parameters in memory that the host cannot touch: the bytes that the CPU has, all of them in the
// device's memory and none mapped.
#include "gtest/gtest.h"
#include "tests/worker/checkpoint/testbed.h"
#include "tests/worker/execute/hidden_device.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/train/toy_job.h"
#include "worker/execute/host_copy.h"
#include "worker/weights/parameters.h"

namespace snug::weights {
namespace {

using checkpoint::TempFolder;
using execute::BytesOf;
using execute::HiddenDevice;
using execute::TestDevice;
using program::DType;
using program::Program;
using train::ToyModel;
using train::WriteModel;

// The embedding is larger than a piece, whatever its number type.
ToyModel LargeModel() { return {.sizes = {1, 64, 4, 2, 96, 40'000}}; }

// With tokens added behind the first `first_added` rows; 0: none.
Program ProgramOf(const std::string& folder, const program::TrainingMode& mode,
                  int64_t first_added) {
  program::ModelConfig config = *program::ReadModelConfig(folder);
  if (first_added > 0) {
    config.file_vocabulary = config.vocabulary;
    config.first_added = first_added;
    config.vocabulary += 4;
  }
  return *program::BuildProgram(config, mode);
}

// By the prediction, without what is the optimizer's of moments.
int64_t HeldBytes(const Program& program) {
  const program::Components bytes =
      program::StaticComponents(program, {8, 1, 8}, {.cpu = false}, 0);
  int64_t masters = 0;
  for (const program::Parameter& parameter : program.parameters) {
    if (HasMaster(parameter)) masters += (parameter.elements() * 4 + 63) / 64 * 64;
  }
  return bytes.weights + bytes.adapter + bytes.gradients + masters;
}

void ExpectSame(const Program& program, const Parameters& here, const Parameters& there) {
  for (size_t p = 0; p < program.parameters.size(); ++p) {
    const execute::ParameterView &a = here.views()[p], &b = there.views()[p];
    const std::string& key = program.parameters[p].key;
    EXPECT_EQ(a.value.dtype, b.value.dtype) << key;
    EXPECT_TRUE(BytesOf(TestDevice(), a.value) == BytesOf(HiddenDevice(), b.value)) << key;
    EXPECT_TRUE(BytesOf(TestDevice(), here.exact(p)) == BytesOf(HiddenDevice(), there.exact(p)))
        << key << ": its exact value";
    ASSERT_EQ(static_cast<bool>(a.gradient), static_cast<bool>(b.gradient)) << key;
    EXPECT_TRUE(BytesOf(TestDevice(), a.gradient) == BytesOf(HiddenDevice(), b.gradient)) << key;
  }
}

void LoadOnBoth(const std::string& folder, const program::TrainingMode& mode,
                int64_t first_added = 0) {
  const Program program = ProgramOf(folder, mode, first_added);
  const LoadOptions options = {.model_dir = folder, .seed = 5};
  const auto here = Parameters::Load(program, options, TestDevice());
  SNUG_ASSERT_OK(here);
  const int64_t before = HiddenDevice().allocator().usage().current_bytes;
  const auto there = Parameters::Load(program, options, HiddenDevice());
  SNUG_ASSERT_OK(there);
  ExpectSame(program, *here, *there);
  EXPECT_EQ(there->mapped_bytes(), 0);
  EXPECT_EQ(HiddenDevice().allocator().usage().current_bytes - before, HeldBytes(program));
}

const program::TrainingMode kModes[] = {
    program::FullMode(), program::LoraMode({"lm_head", "embed_tokens"}),
    program::LoraMode({"q_proj"}, DType::kBF16), program::FullMode(DType::kBF16)};

TEST(HiddenParametersTest, AnyFileGivesTheBytesOfTheCpu) {
  for (const char* dtype : {"F32", "BF16", "F16"}) {
    for (int shift : {0, 1}) {
      const TempFolder folder;
      WriteModel(folder / "model", {.dtype = dtype, .shift = shift});
      for (const program::TrainingMode& mode : kModes) LoadOnBoth(folder / "model", mode);
    }
  }
}

TEST(HiddenParametersTest, ATensorOfManyPiecesIsThatOfTheCpu) {
  for (const char* dtype : {"F32", "F16"}) {
    const TempFolder folder;
    ToyModel model = LargeModel();
    model.dtype = dtype;
    model.shift = 1;
    WriteModel(folder / "model", model);
    LoadOnBoth(folder / "model", program::LoraMode({"q_proj"}, DType::kBF16));
    LoadOnBoth(folder / "model", program::FullMode(DType::kBF16), model.sizes.vocabulary - 3);
  }
}

// Masters changed on the device, as a checkpoint that is restored changes them.
TEST(HiddenParametersTest, MastersAreRoundedOnTheDevice) {
  const TempFolder folder;
  WriteModel(folder / "model", {});
  const Program program = ProgramOf(folder / "model", program::FullMode(DType::kBF16), 0);
  auto parameters = Parameters::Load(program, {.model_dir = folder / "model"}, HiddenDevice());
  SNUG_ASSERT_OK(parameters);
  const float three = 3.0f;
  SNUG_ASSERT_OK(
      execute::CopyMemory(HiddenDevice(), &three, sizeof(three), parameters->exact(0).data));
  SNUG_ASSERT_OK(parameters->RoundMasters());
  const std::vector<char> value = BytesOf(HiddenDevice(), parameters->views()[0].value);
  EXPECT_EQ(value[0], '\x40');
  EXPECT_EQ(value[1], '\x40');  // 3 is 0x4040 in bf16.
}

}  // namespace
}  // namespace snug::weights
