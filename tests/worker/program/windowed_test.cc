// Swin: the orders of patches, the program that any plan computes alike, and what config.json may
// say.
#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/program/models.h"
#include "tests/worker/program/plan_checks.h"
#include "tests/worker/program/shapes.h"
#include "worker/program/patch_order.h"
#include "worker/program/stages.h"

namespace snug::program {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PatchOrderTest, WindowsLieBehindOneAnother) {
  EXPECT_THAT(PatchesOf({.side = 4, .window = 2}),
              ElementsAre(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  EXPECT_EQ((PatchOrder{.side = 4, .window = 2}.parts()), 4);
}

// Of a grid that is shifted by one, the last windows of either direction have two parts, and the
// last of all has four.
TEST(PatchOrderTest, AShiftCutsTheLastWindows) {
  const PatchOrder order = {.side = 4, .window = 2, .shift = 1};
  EXPECT_THAT(PatchesOf(order), ElementsAre(5, 6, 9, 10, 7, 11, 4, 8, 13, 14, 1, 2, 15, 12, 3, 0));
  const WindowParts parts = PartsOf(order);
  EXPECT_THAT(parts.patches, ElementsAre(4, 2, 2, 2, 2, 1, 1, 1, 1));
  EXPECT_THAT(parts.widths, ElementsAre(2, 1, 1, 2, 2, 1, 1, 1, 1));
  EXPECT_EQ(order.parts(), 9);
}

// Pairs that attend to each other are those that transformers' mask leaves: patches of one window
// of the shifted grid, and of one of its nine regions.
TEST(PatchOrderTest, PartsAreWhatTheMaskLeaves) {
  for (const PatchOrder& order :
       {PatchOrder{.side = 12, .window = 3, .shift = 1}, {.side = 14, .window = 7, .shift = 3}}) {
    const int64_t side = order.side, window = order.window, shift = order.shift;
    const auto region = [&](int64_t at) {
      return (at >= side - window ? 1 : 0) + (at >= side - shift ? 1 : 0);
    };
    const auto mark = [&](int64_t patch) {  // Of its window and its region.
      const int64_t y = (patch / side + side - shift) % side;
      const int64_t x = (patch % side + side - shift) % side;
      return std::vector<int64_t>{y / window, x / window, region(y), region(x)};
    };
    const std::vector<int32_t> patches = PatchesOf(order);
    const WindowParts parts = PartsOf(order);
    std::vector<std::vector<int64_t>> seen;
    size_t row = 0;
    for (size_t part = 0; part < parts.patches.size(); ++part) {
      const int64_t first = patches[row];
      for (int64_t i = 0; i < parts.patches[part]; ++i, ++row) {
        EXPECT_EQ(mark(patches[row]), mark(first));
        const int64_t down = i / parts.widths[part], across = i % parts.widths[part];
        EXPECT_EQ(patches[row] / side, (first / side + down) % side);
        EXPECT_EQ(patches[row] % side, (first % side + across) % side);
      }
      seen.push_back(mark(first));
    }
    EXPECT_EQ(row, patches.size());
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
  }
}

TEST(PatchOrderTest, FourPatchesThatMergeLieTogether) {
  EXPECT_THAT(PatchesOf({.side = 4, .window = 1, .in_fours = true}),
              ElementsAre(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15));
  EXPECT_THAT(PatchesOf({.side = 8, .window = 2, .in_fours = true})[16], 4);
}

TEST(PatchOrderTest, RowsBetweenOrdersHaveThePatchesOfBoth) {
  const PatchOrder from = {.side = 6, .window = 3}, to = {.side = 6, .window = 3, .shift = 1};
  const std::vector<int32_t> rows = RowsBetween(from, to), back = RowsBetween(to, from);
  for (size_t r = 0; r < rows.size(); ++r) {
    EXPECT_EQ(PatchesOf(from)[static_cast<size_t>(rows[r])], PatchesOf(to)[r]);
    EXPECT_EQ(back[static_cast<size_t>(rows[r])], static_cast<int32_t>(r));
  }
}

TEST(WindowedTest, EveryPlanGivesTheGradients) {
  std::mt19937 random(17);
  TrainingMode lora = LoraMode({"q_proj", "reduction", "fc2"});
  lora.adapter.rank = 2;
  lora.adapter.modules_to_save = {"classifier"};
  for (const TrainingMode& mode : {FullMode(), lora}) {
    const auto program = BuildProgram(WindowedShape(4), mode);
    ASSERT_TRUE(program.ok()) << program.status();
    ExpectAnyPlanGivesTheGradientsOfKeep(*program, 60, random);
    ExpectFiniteDifferences(*program, random);
  }
}

TEST(WindowedTest, LayersAreNumberedThroughStages) {
  const ModelConfig config = WindowedShape(4);
  EXPECT_EQ(LayersOf(config), 4);
  EXPECT_EQ(LayerPrefix(config, 1), "swin.encoder.layers.0.blocks.1.");
  EXPECT_EQ(LayerPrefix(config, 2), "swin.encoder.layers.0.downsample.");
  EXPECT_EQ(LayerModules(config, 3), "swin.encoder.layers.1.blocks.0.");
  EXPECT_FALSE(IsShifted(config, PlaceOf(config, 0)));
  EXPECT_TRUE(IsShifted(config, PlaceOf(config, 1)));
  EXPECT_EQ(DropPathOf(config, PlaceOf(config, 0)), 0.0);
  EXPECT_EQ(DropPathOf(config, PlaceOf(config, 1)), 0.15);
  EXPECT_EQ(DropPathOf(config, PlaceOf(config, 3)), 0.3);
  EXPECT_EQ(WithStages({.tokens = 32}, config).Of(Rows::kMerged1), 8);
}

// Files spell a layer as transformers 4 did, adapters as its class does now.
TEST(WindowedTest, NamesAreThoseOfFilesAndOfTheClass) {
  TrainingMode lora = LoraMode({"q_proj", "reduction"});
  lora.adapter.rank = 2;
  lora.adapter.modules_to_save = {"classifier"};
  ModelConfig config = WindowedShape(4);
  config.stages[0].layers = 1;
  config.layers = LayersOf(config);
  const auto program = BuildProgram(config, lora);
  ASSERT_TRUE(program.ok()) << program.status();
  std::vector<std::string> files, adapter;
  for (const Parameter& p : program->parameters) {
    if (InAdapterFile(p)) adapter.push_back(AdapterFileKey(p));
    if (!p.adapter) files.push_back(p.key);
  }
  const std::string layers = "base_model.model.swin.encoder.layers.";
  EXPECT_THAT(adapter,
              ::testing::UnorderedElementsAre(layers + "0.blocks.0.attention.q_proj.lora_A.weight",
                                              layers + "0.blocks.0.attention.q_proj.lora_B.weight",
                                              layers + "1.blocks.0.attention.q_proj.lora_A.weight",
                                              layers + "1.blocks.0.attention.q_proj.lora_B.weight",
                                              layers + "0.downsample.reduction.lora_A.weight",
                                              layers + "0.downsample.reduction.lora_B.weight",
                                              "base_model.model.classifier.weight",
                                              "base_model.model.classifier.bias"));
  for (const char* key :
       {"swin.embeddings.norm.bias", "swin.embeddings.patch_embeddings.projection.weight",
        "swin.encoder.layers.0.blocks.0.attention.self.relative_position_bias_table",
        "swin.encoder.layers.0.blocks.0.intermediate.dense.weight",
        "swin.encoder.layers.0.downsample.norm.weight", "swin.layernorm.weight"})
    EXPECT_THAT(files, ::testing::Contains(key));
}

absl::StatusOr<ModelConfig> Parsed(const std::string& fields) {
  return ParseModelConfig(
      absl::StrCat(R"({"model_type": "swin", "architectures": ["SwinForImageClassification"])",
                   fields, "}"),
      "config.json");
}

TEST(WindowedTest, ConfigsAreRead) {
  const auto config = Parsed("");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->task, Task::kImageClassification);
  EXPECT_EQ(config->layers, 2 + 2 + 6 + 2 + 3);
  EXPECT_EQ(config->width, 768);
  EXPECT_EQ(config->mlp_width, 4 * 768);
  EXPECT_EQ(config->tokens_of_image(), 56 * 56);
  EXPECT_EQ(config->drop_path, 0.1);
  EXPECT_EQ(WidthOf(*config, 0), 96);
  EXPECT_EQ(SideOf(*config, 3), 7);
  EXPECT_TRUE(CheckModelConfig(*config).ok()) << CheckModelConfig(*config);
  EXPECT_TRUE(Parsed(R"(, "image_size": 384, "window_size": 12)").ok());
  for (const auto& [fields, said] : std::vector<std::pair<std::string, std::string>>{
           {R"(, "image_size": 256)", "whole windows of 7 x 7"},
           {R"(, "image_size": 56)", "whole windows of 7 x 7"},
           {R"(, "depths": [2, 2], "num_heads": [3, 6], "image_size": 84)", "whole windows"},
           {R"(, "depths": [2, 2])", "num_heads is missing; accepted: 2 numbers"},
           {R"(, "depths": [1, 1, 1, 1, 1])", "a list of 1 to 4 numbers"},
           {R"(, "num_heads": [3, 6, 12, 0])", "a list of 1 to 4 numbers of 1 to 1024"},
           {R"(, "num_heads": [5, 6, 12, 24])", "each head of stage 1, of 96 / 5"},
           {R"(, "mlp_ratio": 2.003)", "a whole number of times embed_dim = 96"},
           {R"(, "use_absolute_embeddings": true)", "use_absolute_embeddings"},
           {R"(, "patch_size": 5)", "a multiple of patch_size = 5"},
           {R"(, "window_size": 0)", "window_size"}})
    EXPECT_THAT(std::string(Parsed(fields).status().message()), HasSubstr(said)) << fields;
}

TEST(WindowedTest, StagesOfAnotherProcessAreChecked) {
  const ModelConfig good = WindowedShape(4);
  EXPECT_TRUE(CheckModelConfig(good).ok()) << CheckModelConfig(good);
  const auto refused = [&](auto change) {
    ModelConfig config = good;
    change(config);
    return !CheckModelConfig(config).ok();
  };
  EXPECT_TRUE(refused([](ModelConfig& c) { c.stages.clear(); }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.stages[0].heads = 0; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.stages[0].heads = 3; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.stages[0].layers = 3; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.window_side = 0; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.window_side = 3; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.drop_path = 1.0; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.model_type = "vit"; }));
}

}  // namespace
}  // namespace snug::program
