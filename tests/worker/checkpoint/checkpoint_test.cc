#include "worker/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "tests/worker/checkpoint/testbed.h"
#include "worker/checkpoint/sha256.h"

namespace snug::checkpoint {
namespace {

using testing::HasSubstr;

// What is read back is what was saved, to the bit, and so is the state: a seed above 2^63, a token
// count that no double holds, a loss that no short decimal is.
TEST(CheckpointTest, GivesBackWhatWasSaved) {
  const TempFolder folder;
  Tensors weights = SmallWeights(1.0f);
  weights.AddBf16("embedding", {3, 2}, {0x3f80, 0x4000, 0xc040, 0x0000, 0x8000, 0x0001});
  Tensors optimizer = SmallOptimizer(1.0f);
  const auto saved = Save(folder.path(), StateAt(123), weights.list(), optimizer.list());
  SNUG_ASSERT_OK(saved);
  EXPECT_EQ(saved->path, folder / "step-000123.e1");

  Tensors weights_back = weights, optimizer_back = optimizer;
  std::vector<std::string> bytes;
  for (size_t i = 0; i < weights.list().size(); ++i) bytes.push_back(weights.bytes(i));
  weights.Clear();
  optimizer.Clear();
  const auto state = Restore(saved->path, weights.list(), optimizer.list());
  SNUG_ASSERT_OK(state);
  for (size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(weights.bytes(i), bytes[i]) << i;
  EXPECT_EQ(optimizer.f32(0), SmallOptimizer(1.0f).f32(0));
  EXPECT_EQ(optimizer.f32(3), SmallOptimizer(1.0f).f32(3));

  const RunState wanted = StateAt(123);
  EXPECT_EQ(state->job_id, wanted.job_id);
  EXPECT_EQ(state->epoch, 1);
  EXPECT_EQ(state->global_step, 123);
  EXPECT_EQ(state->max_steps, 1000);
  EXPECT_EQ(state->seed, 18446744073709551557ull);
  EXPECT_EQ(state->data_epoch, 3);
  EXPECT_EQ(state->data_micro_batch, 17);
  EXPECT_EQ(state->num_tokens, 9007199254740993);
  EXPECT_EQ(state->last_loss, 0.1 + 0.2);
  EXPECT_EQ(state->plan_name, wanted.plan_name);
  EXPECT_EQ(state->dataset_sha256, wanted.dataset_sha256);
  EXPECT_EQ(state->best.step, 90);
  EXPECT_EQ(state->best.metric, 0.7);
  EXPECT_EQ(state->best.waited, 2);
  EXPECT_EQ(state->best.checkpoint, "step-000090.e1");
}

TEST(CheckpointTest, ARunWithoutEvaluationsHasNoBest) {
  const TempFolder folder;
  RunState state = StateAt(5);
  state.best = {};
  const auto saved = Save(folder.path(), state, SmallWeights(1.0f).list(), {});
  SNUG_ASSERT_OK(saved);
  EXPECT_EQ(Verify(saved->path)->best.step, -1);
  EXPECT_FALSE(nlohmann::json::parse(ReadText(saved->path + "/MANIFEST.json")).contains("best"));
}

// What the daemon, and a person, reads in the manifest.
TEST(CheckpointTest, NamesEveryFileInTheManifest) {
  const TempFolder folder;
  const auto saved =
      Save(folder.path(), StateAt(7, 4), SmallWeights(1.0f).list(), SmallOptimizer(1.0f).list());
  SNUG_ASSERT_OK(saved);
  const std::string text = ReadText(saved->path + "/MANIFEST.json");
  EXPECT_EQ(saved->manifest_sha256, Sha256Hex(text));
  const nlohmann::json manifest = nlohmann::json::parse(text);
  EXPECT_EQ(manifest["schema"], 1);
  EXPECT_EQ(manifest["step"], 7);
  EXPECT_EQ(manifest["epoch"], 4);
  ASSERT_EQ(manifest["files"].size(), 2u);
  int64_t bytes = 0;
  for (const auto& [name, entry] : manifest["files"].items()) {
    const std::string content = ReadText(saved->path + "/" + name);
    EXPECT_EQ(entry["bytes"], content.size());
    EXPECT_EQ(entry["sha256"], Sha256Hex(content));
    bytes += static_cast<int64_t>(content.size());
  }
  EXPECT_EQ(saved->bytes, bytes);
}

// What makes a model's folder, in a folder below it as well.
absl::Status WriteToyModel(const std::string& folder) {
  std::filesystem::create_directory(folder + "/templates");
  WriteText(folder + "/templates/tool.jinja", "{{ tools }}");
  WriteText(folder + "/config.json", "{}");
  return absl::OkStatus();
}

// Of a whole model: every file of its folder is in the manifest and is verified, and the weights
// have the name that readers of models know.
TEST(CheckpointTest, OfAWholeModelIsAModelsFolder) {
  const TempFolder folder;
  const Tensors weights = SmallWeights(1.0f), optimizer = SmallOptimizer(1.0f);
  const auto saved =
      Save(folder.path(), StateAt(7), weights.list(), optimizer.list(), WriteToyModel);
  SNUG_ASSERT_OK(saved);
  const auto files = nlohmann::json::parse(ReadText(saved->path + "/MANIFEST.json"))["files"];
  std::vector<std::string> names;
  int64_t bytes = 0;
  for (const auto& [name, entry] : files.items()) {
    names.push_back(name);
    bytes += entry["bytes"].get<int64_t>();
  }
  EXPECT_THAT(names, testing::ElementsAre("config.json", "model.safetensors",
                                          "optimizer.safetensors", "templates/tool.jinja"));
  EXPECT_EQ(saved->bytes, bytes);
  EXPECT_EQ(WeightsFileOf(saved->path), saved->path + "/model.safetensors");
  Tensors back = SmallWeights(0.0f), moments = SmallOptimizer(0.0f);
  SNUG_ASSERT_OK(Restore(saved->path, back.list(), moments.list()));
  EXPECT_EQ(back.f32(1), weights.f32(1));
  WriteText(saved->path + "/templates/tool.jinja", "{{ other }}");
  EXPECT_EQ(Verify(saved->path).status().code(), absl::StatusCode::kDataLoss);
}

// The base's files may be gone while it is trained: what is needed to resume is saved all the same.
TEST(CheckpointTest, IsSavedWithoutTheFilesOfAModelThatCannotBeWritten) {
  const TempFolder folder;
  const auto write_half = [](const std::string& into) {
    WriteText(into + "/config.json", "{}");
    return absl::NotFoundError("no tokenizer any more");
  };
  const auto saved = Save(folder.path(), StateAt(7), SmallWeights(1.0f).list(), {}, write_half);
  SNUG_ASSERT_OK(saved);
  EXPECT_FALSE(std::filesystem::exists(saved->path + "/config.json"));
  EXPECT_EQ(WeightsFileOf(saved->path), saved->path + "/weights.safetensors");
  SNUG_ASSERT_OK(Verify(saved->path));
}

TEST(CheckpointTest, IsForItsOwnerAlone) {
  const TempFolder folder;
  const auto saved = Save(folder.path(), StateAt(1), SmallWeights(1.0f).list(), {});
  SNUG_ASSERT_OK(saved);
  struct stat about = {};
  ASSERT_EQ(stat(saved->path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
  ASSERT_EQ(stat((saved->path + "/MANIFEST.json").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
}

// A NaN anywhere, in weights, moments or the loss: no folder of any name is left.
TEST(CheckpointTest, NeverSavesANaN) {
  const TempFolder folder;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Tensors bad;
  bad.AddF32("m.w", {3}, {1.0f, nan, 2.0f});
  const Tensors good = SmallWeights(1.0f);
  const auto in_moments = Save(folder.path(), StateAt(1), good.list(), bad.list());
  EXPECT_EQ(in_moments.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(in_moments.status().message()), HasSubstr("m.w: element 1"));
  EXPECT_FALSE(Save(folder.path(), StateAt(1), bad.list(), good.list()).ok());
  RunState state = StateAt(1);
  state.last_loss = nan;
  const auto of_loss = Save(folder.path(), state, good.list(), good.list());
  EXPECT_EQ(of_loss.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// A killed attempt left half a folder under the very name; it does not get into the new one.
TEST(CheckpointTest, ReplacesALeftOverOfItsOwnName) {
  const TempFolder folder;
  const std::string left_over = folder / "step-000005.e1.tmp";
  std::filesystem::create_directories(left_over + "/deeper");
  WriteText(left_over + "/weights.safetensors", "half");
  WriteText(left_over + "/surplus", "x");
  const auto saved = Save(folder.path(), StateAt(5), SmallWeights(2.0f).list(), {});
  SNUG_ASSERT_OK(saved);
  SNUG_ASSERT_OK(Verify(saved->path));
  EXPECT_FALSE(std::filesystem::exists(left_over));
  EXPECT_FALSE(std::filesystem::exists(saved->path + "/surplus"));
}

TEST(CheckpointTest, NeverReplacesACheckpoint) {
  const TempFolder folder;
  const auto first = Save(folder.path(), StateAt(5), SmallWeights(1.0f).list(), {});
  SNUG_ASSERT_OK(first);
  const auto second = Save(folder.path(), StateAt(5), SmallWeights(2.0f).list(), {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists) << second.status();
  Tensors back = SmallWeights(0.0f);
  SNUG_ASSERT_OK(Restore(first->path, back.list(), {}));
  EXPECT_EQ(back.f32(1), SmallWeights(1.0f).f32(1));
  EXPECT_FALSE(std::filesystem::exists(folder / "step-000005.e1.tmp"));
}

// A sound checkpoint, but of another job's shapes: nothing is read into a tensor of another size.
TEST(CheckpointTest, RestoresOnlyTheSameTensors) {
  const TempFolder folder;
  const auto saved =
      Save(folder.path(), StateAt(5), SmallWeights(1.0f).list(), SmallOptimizer(1.0f).list());
  SNUG_ASSERT_OK(saved);
  Tensors optimizer = SmallOptimizer(0.0f);
  const auto restore = [&](const Tensors& weights) {
    const auto state = Restore(saved->path, weights.list(), optimizer.list());
    EXPECT_EQ(state.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(state.status().message());
  };
  Tensors shape;
  shape.AddNumbered("layers.0.lora_A.weight", {16, 4}, 0.0f);
  shape.AddNumbered("layers.0.lora_B.weight", {24, 4}, 0.0f);
  EXPECT_THAT(restore(shape),
              HasSubstr("layers.0.lora_A.weight is F32 [4, 16]; this job has F32 [16, 4]"));
  Tensors fewer;
  fewer.AddNumbered("layers.0.lora_A.weight", {4, 16}, 0.0f);
  EXPECT_THAT(restore(fewer), HasSubstr("has layers.0.lora_B.weight, which this job does not"));
  Tensors more = SmallWeights(0.0f);
  more.AddNumbered("layers.1.lora_A.weight", {4, 16}, 0.0f);
  EXPECT_THAT(restore(more), HasSubstr("has no layers.1.lora_A.weight"));
  Tensors dtype = SmallWeights(0.0f);
  dtype.list()[0].dtype = "BF16";
  EXPECT_THAT(restore(dtype), HasSubstr("this job has BF16"));
}

TEST(CheckpointTest, SaysWhereThereIsNone) {
  const TempFolder folder;
  const auto state = Verify(folder / "step-000001.e1");
  EXPECT_EQ(state.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(state.status().message()), HasSubstr("step-000001.e1"));
}

// The folder of a job's checkpoints, and those that it lies in, are made with the first of them.
TEST(CheckpointTest, MakesTheFolderOfCheckpoints) {
  const TempFolder folder;
  const std::string dir = folder / "jobs/a/checkpoints";
  SNUG_ASSERT_OK(Save(dir, StateAt(1), SmallWeights(1.0f).list(), {}));
  SNUG_ASSERT_OK(Verify(dir + "/step-000001.e1"));
  WriteText(folder / "file", "");
  EXPECT_FALSE(Save(folder / "file/checkpoints", StateAt(1), SmallWeights(1.0f).list(), {}).ok());
}

}  // namespace
}  // namespace snug::checkpoint
