// PEFT's rules of matching, as a table; that they are PEFT's is shown against PEFT itself in
// tests/parity and tests/worker/checkpoint/export_with_peft_test.py.
#include "worker/program/lora_targets.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/program/models.h"

namespace snug::program {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Kind = Module::Kind;

std::vector<Module> TwoLayers() {
  std::vector<Module> modules = {{"model.embed_tokens", Kind::kEmbedding}};
  for (int64_t layer : {0, 1}) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    modules.push_back({prefix + "input_layernorm", Kind::kNorm});
    modules.push_back({prefix + "self_attn.q_proj", Kind::kLinear});
    modules.push_back({prefix + "mlp.up_proj", Kind::kLinear});
  }
  modules.push_back({"model.norm", Kind::kNorm});
  modules.push_back({"lm_head", Kind::kHead});
  return modules;
}

LoraConfig Config(std::vector<std::string> targets) {
  LoraConfig lora = {.rank = 4, .alpha = 8.0};
  lora.target_modules = std::move(targets);
  return lora;
}

std::vector<std::string> Adapted(const LoraConfig& lora) {
  const auto targets = ResolveTargets(lora, TwoLayers());
  EXPECT_TRUE(targets.ok()) << targets.status();
  std::vector<std::string> paths;
  if (targets.ok())
    for (const auto& [path, adapter] : targets->adapters) paths.push_back(path);
  return paths;
}

std::string Refusal(const LoraConfig& lora) {
  return std::string(ResolveTargets(lora, TwoLayers()).status().message());
}

TEST(LoraTargetsTest, NamesMatchWholePathsOrTheirEnds) {
  EXPECT_THAT(Adapted(Config({"up_proj"})),
              ElementsAre("model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj"));
  EXPECT_THAT(Adapted(Config({"layers.1.mlp.up_proj", "model.layers.0.self_attn.q_proj"})),
              ElementsAre("model.layers.0.self_attn.q_proj", "model.layers.1.mlp.up_proj"));
  EXPECT_EQ(Adapted(Config({"all-linear"})).size(), 4u);  // Neither head nor embedding.
  EXPECT_THAT(
      Refusal(Config({"p_proj"})),
      HasSubstr("lora.target_modules: no module 'p_proj'; this model has model.embed_tokens, "
                "self_attn.q_proj, mlp.up_proj, lm_head (or all-linear)"));
  EXPECT_THAT(Refusal(Config({"norm"})), HasSubstr("no module 'norm'"));
}

TEST(LoraTargetsTest, ARegularExpressionMatchesWholePaths) {
  EXPECT_THAT(Adapted(Config({R"(model\.layers\.1\..*_proj)"})),
              ElementsAre("model.layers.1.mlp.up_proj", "model.layers.1.self_attn.q_proj"));
  EXPECT_THAT(Refusal(Config({"q_proj$"})), HasSubstr("no module is left"));
  EXPECT_THAT(Refusal(Config({".*self_attn.*"})),
              HasSubstr("model.layers.0.self_attn, which takes"));
  EXPECT_THAT(Refusal(Config({".*layernorm"})),
              HasSubstr("input_layernorm, which takes no adapter"));
  EXPECT_THAT(Refusal(Config({"(q_proj"})), HasSubstr("lora.target_modules: \"(q_proj\": missing"));
  EXPECT_THAT(Refusal(Config({"(?=q)_proj"})), HasSubstr("invalid perl operator: (?="));
}

TEST(LoraTargetsTest, WhatIsExcludedOrTrainedWholeIsNotAdapted) {
  LoraConfig lora = Config({"all-linear"});
  lora.exclude_modules = {"layers.0.mlp.up_proj"};
  EXPECT_EQ(Adapted(lora).size(), 3u);
  lora.exclude_modules = {R"(.*\.1\..*)"};
  EXPECT_EQ(Adapted(lora).size(), 2u);
  lora.modules_to_save = {"q_proj"};
  EXPECT_THAT(Adapted(lora), ElementsAre("model.layers.0.mlp.up_proj"));
  lora.exclude_modules = {".*"};
  EXPECT_THAT(Refusal(lora), HasSubstr("no module is left to adapt"));
}

// Whatever ends with the name, which needs no dot before it.
TEST(LoraTargetsTest, ModulesToSaveAreEndsOfPaths) {
  LoraConfig lora = Config({"up_proj"});
  lora.modules_to_save = {"norm", "lm_head"};
  EXPECT_THAT(ResolveTargets(lora, TwoLayers())->saved,
              UnorderedElementsAre("model.layers.0.input_layernorm",
                                   "model.layers.1.input_layernorm", "model.norm", "lm_head"));
  lora.modules_to_save = {"mlp"};
  EXPECT_THAT(Refusal(lora), HasSubstr("lora.modules_to_save: no module 'mlp'"));
  lora.modules_to_save = {"classifier"};
  EXPECT_THAT(Refusal(lora),
              HasSubstr("no module 'classifier'; this model has model.embed_tokens"));
  lora.modules_to_save = {"p_proj"};  // PEFT would adapt up_proj and train it whole.
  EXPECT_THAT(Refusal(lora), HasSubstr("mlp.up_proj would be trained whole and adapted too"));
}

TEST(LoraTargetsTest, LayersToTransformBelongToAListOfNames) {
  LoraConfig lora = Config({"q_proj", "up_proj"});
  lora.layers_to_transform = {1};
  EXPECT_THAT(Adapted(lora),
              ElementsAre("model.layers.1.mlp.up_proj", "model.layers.1.self_attn.q_proj"));
  lora.layers_to_transform = {2};
  EXPECT_THAT(Refusal(lora), HasSubstr("lora.layers_to_transform: the model has no layer 2"));
  lora.layers_to_transform = {1};
  lora.target_modules = {"all-linear"};
  EXPECT_THAT(Refusal(lora), HasSubstr("lora.layers_to_transform: PEFT takes it beside a list"));
  lora.target_modules = {"all-linear", "q_proj"};
  EXPECT_THAT(Refusal(lora), HasSubstr("lora.layers_to_transform: PEFT takes it beside a list"));
  lora.target_modules = {"model.layers.0.mlp.up_proj", "q_proj"};  // A whole path has its layer.
  EXPECT_THAT(Adapted(lora),
              ElementsAre("model.layers.0.mlp.up_proj", "model.layers.1.self_attn.q_proj"));
}

TEST(LoraTargetsTest, PatternsGiveRankAndScale) {
  LoraConfig lora = Config({"all-linear"});
  lora.rank_pattern = {{"q_proj", 2}, {R"(layers\.1\.mlp\.up_proj)", 16}};
  lora.alpha_pattern = {{"up_proj", 32.0}};
  auto adapters = ResolveTargets(lora, TwoLayers())->adapters;
  EXPECT_EQ(adapters["model.layers.0.self_attn.q_proj"], (Adapter{2, 4.0, 0.0}));
  EXPECT_EQ(adapters["model.layers.0.mlp.up_proj"], (Adapter{4, 8.0, 0.0}));
  EXPECT_EQ(adapters["model.layers.1.mlp.up_proj"], (Adapter{16, 2.0, 0.0}));
  lora.rslora = true;
  EXPECT_EQ(ResolveTargets(lora, TwoLayers())->adapters["model.layers.1.mlp.up_proj"].scale, 8.0);
  lora.alpha_pattern = {{"up_proj", 32.0}, {"mlp.*", 3.0}};
  EXPECT_THAT(Refusal(lora), HasSubstr("both match model.layers.0.mlp.up_proj and differ"));
  lora.alpha_pattern = {{"k_proj", 32.0}};
  EXPECT_THAT(Refusal(lora), HasSubstr("lora.alpha_pattern: \"k_proj\" matches no adapted module"));
  lora.rank_pattern = {{"q_proj", 0}};
  EXPECT_THAT(Refusal(lora), HasSubstr("lora.rank_pattern: 0 is not in [1, 8192]"));
}

// One matrix with two uses: PEFT's adapter would change one of them alone.
TEST(LoraTargetsTest, ATiedHeadOrEmbeddingTakesNoAdapter) {
  ModelConfig config = LlamaShape({1, 8, 2, 1, 12, 11});
  for (const char* module : {"lm_head", "embed_tokens"}) {
    config.tied_embeddings = false;
    EXPECT_TRUE(BuildProgram(config, LoraMode({module})).ok()) << module;
    config.tied_embeddings = true;
    const absl::Status refused = BuildProgram(config, LoraMode({module})).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused));
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("lora.target_modules: "), HasSubstr("tie_word_embeddings"),
                      HasSubstr("name embed_tokens in modules_to_save")));
  }
}

TEST(LoraTargetsTest, NothingAskedForIsTheBaseAsItIs) {
  const auto none = ResolveTargets(Config({}), TwoLayers());
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_THAT(none->adapters, IsEmpty());
  EXPECT_THAT(none->saved, IsEmpty());
}

TEST(LoraTargetsTest, ALayerHasItsOwn) {
  LoraConfig lora = Config({"layers.1.mlp.up_proj"});
  lora.modules_to_save = {"0.input_layernorm", "lm_head"};
  const LoraTargets targets = *ResolveTargets(lora, TwoLayers());
  EXPECT_THAT(targets.InLayer("model.layers.0.").adapters, IsEmpty());
  EXPECT_THAT(targets.InLayer("model.layers.0.").saved, ElementsAre("input_layernorm"));
  EXPECT_TRUE(targets.InLayer("model.layers.1.").adapters.contains("mlp.up_proj"));
  EXPECT_THAT(targets.InLayer("model.layers.1.").saved, IsEmpty());
}

}  // namespace
}  // namespace snug::program
