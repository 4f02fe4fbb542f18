#include "worker/program/files/adapter_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/program/models.h"
#include "worker/program/files/base_model.h"

namespace snug::program {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Program ProgramOf(const LoraConfig& lora) {
  return *BuildProgram(LlamaShape({2, 32, 4, 2, 48, 61}), {.lora = true, .adapter = lora});
}

TEST(AdapterExportTest, NamesTheModulesAsPeftDoes) {
  const AdapterContents adapted = {.adapted = {{"model.layers.0.mlp.up_proj", 2},
                                               {"model.layers.0.self_attn.q_proj", 2},
                                               {"model.layers.1.mlp.up_proj", 2}},
                                   .saved = {}};
  LoraConfig lora = {.target_modules = {"all-linear"}};
  EXPECT_THAT(TargetModules(lora, adapted), ElementsAre("q_proj", "up_proj"));
  lora.target_modules = {"up_proj", "layers.0.self_attn.q_proj"};
  EXPECT_THAT(TargetModules(lora, adapted), ElementsAre("layers.0.self_attn.q_proj", "up_proj"));
}

TEST(AdapterExportTest, ASnapshotOfTheHubIsNamedAsOthersFindIt) {
  const auto of = [](const std::string& folder) {
    const BaseModel base = BaseModelOf(folder);
    return base.name + " at " + base.revision;
  };
  EXPECT_EQ(of("/hub/models--org--tiny-1.5/snapshots/01ab"), "org/tiny-1.5 at 01ab");
  EXPECT_EQ(of("/hub/models--gpt2/snapshots/01ab/"), "gpt2 at 01ab");
  for (const std::string other :
       {"/models/tiny", "/hub/datasets--org--tiny/snapshots/01ab", "/models--a--b/snapshots",
        "/hub/models--org--tiny/refs/main", "/a--b/snapshots/01ab", "models--a", "/", ""}) {
    EXPECT_EQ(of(other), other + " at ");
  }
}

// Whatever a job may ask for is read back as it was asked for.
TEST(AdapterExportTest, WhatIsWrittenLeadsBack) {
  const LoraConfig configs[] = {
      {},
      {.rank = 3, .alpha = 0.1, .dropout = 0.25, .rslora = true},
      {.target_modules = {kAllLinear, "lm_head"}},
      {.target_modules = {R"(.*\.(q|v)_proj)"}, .rank_pattern = {{"q_proj", 4}}},
      {.target_modules = {"layers.1.mlp.up_proj", "q_proj"},
       .alpha_pattern = {{"layers.1.*", 1e-3}},
       .exclude_modules = {"layers.0.self_attn.q_proj"}},
      {.target_modules = {"q_proj"}, .layers_to_transform = {1}, .modules_to_save = {"lm_head"}}};
  for (const LoraConfig& lora : configs) {
    const absl::Status status = CheckAdapterExport(ProgramOf(lora), lora, "a base");
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(AdapterExportTest, WhatLeadsToAnotherAdapterIsRefused) {
  const Program program = ProgramOf({.target_modules = {"q_proj"}});
  const auto refusal = [&](const LoraConfig& lora, const std::string& base = "base") {
    return std::string(CheckAdapterExport(program, lora, base).message());
  };
  EXPECT_EQ(refusal({.target_modules = {"q_proj"}}), "");
  EXPECT_THAT(refusal({.target_modules = {"k_proj"}}),
              HasSubstr("adapter_config.json of the job's result: does not lead to "));
  EXPECT_THAT(refusal({.target_modules = {"q_proj", "v_proj"}}), HasSubstr("not"));
  EXPECT_THAT(refusal({.alpha = 16, .target_modules = {"q_proj"}}), HasSubstr(" with scale 2"));
  EXPECT_THAT(refusal({.target_modules = {"q_proj"}}, "\xff"), HasSubstr("not fit for JSON"));
}

}  // namespace
}  // namespace snug::program
