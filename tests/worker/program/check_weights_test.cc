#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "worker/program/files/safetensors.h"

namespace snug::program {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Program BuildTiny(bool tied, bool lora = false) {
  ModelConfig config;
  config.model_type = "llama";
  config.layers = 2;
  config.width = 8;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_width = 6;
  config.mlp_width = 10;
  config.vocabulary = 11;
  config.max_positions = 32;
  config.tied_embeddings = tied;
  TrainingMode mode;
  mode.lora = lora;
  mode.adapter.rank = 3;
  mode.adapter.target_modules = {"q_proj"};
  absl::StatusOr<Program> program = BuildProgram(config, mode);
  EXPECT_TRUE(program.ok()) << program.status();
  return *std::move(program);
}

TensorEntry Entry(const std::string& dtype, const std::vector<int64_t>& shape) {
  TensorEntry entry;
  entry.dtype = dtype;
  entry.shape = shape;
  entry.file = "/models/m/model.safetensors";
  return entry;
}

// Literal, so that the program's own names are tested too.
TensorIndex TinyWeights() {
  TensorIndex index = {{"model.embed_tokens.weight", Entry("F32", {11, 8})},
                       {"model.norm.weight", Entry("F32", {8})},
                       {"lm_head.weight", Entry("F32", {11, 8})}};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    index[layer + "input_layernorm.weight"] = Entry("F32", {8});
    index[layer + "self_attn.q_proj.weight"] = Entry("BF16", {12, 8});
    index[layer + "self_attn.k_proj.weight"] = Entry("BF16", {6, 8});
    index[layer + "self_attn.v_proj.weight"] = Entry("BF16", {6, 8});
    index[layer + "self_attn.o_proj.weight"] = Entry("F16", {8, 12});
    index[layer + "post_attention_layernorm.weight"] = Entry("F32", {8});
    index[layer + "mlp.gate_proj.weight"] = Entry("F32", {10, 8});
    index[layer + "mlp.up_proj.weight"] = Entry("F32", {10, 8});
    index[layer + "mlp.down_proj.weight"] = Entry("F32", {8, 10});
  }
  return index;
}

std::string Refusal(const Program& program, const TensorIndex& index) {
  return std::string(CheckWeights(program, index).message());
}

TEST(CheckWeightsTest, AcceptsTheWeightsOfTheModel) {
  EXPECT_EQ(Refusal(BuildTiny(/*tied=*/false), TinyWeights()), "");
  EXPECT_EQ(Refusal(BuildTiny(/*tied=*/false, /*lora=*/true), TinyWeights()), "");
}

TEST(CheckWeightsTest, ATiedHeadMayBeThereOrNot) {
  TensorIndex weights = TinyWeights();
  EXPECT_EQ(Refusal(BuildTiny(/*tied=*/true), weights), "");
  weights["lm_head.weight"].shape = {11, 9};
  EXPECT_THAT(Refusal(BuildTiny(/*tied=*/true), weights),
              HasSubstr("\"lm_head.weight\" is [11, 9]"));
  weights.erase("lm_head.weight");
  EXPECT_EQ(Refusal(BuildTiny(/*tied=*/true), weights), "");
  EXPECT_THAT(Refusal(BuildTiny(/*tied=*/false), weights),
              HasSubstr("missing (1): \"lm_head.weight\" [11, 8]"));
}

// Two number types cannot hold one matrix's bytes: that much the header shows.
TEST(CheckWeightsTest, ATiedHeadHasTheTypeOfTheEmbedding) {
  TensorIndex weights = TinyWeights();
  weights["lm_head.weight"].dtype = "BF16";
  EXPECT_EQ(Refusal(BuildTiny(/*tied=*/false), weights), "");
  EXPECT_THAT(Refusal(BuildTiny(/*tied=*/true), weights),
              HasSubstr("\"lm_head.weight\" is BF16, but \"model.embed_tokens.weight\", to which "
                        "config.json ties it, is F32"));
}

TEST(CheckWeightsTest, PassesOverBuffersThatWereOnceSaved) {
  TensorIndex weights = TinyWeights();
  weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = Entry("F32", {3});
  weights["model.rotary_emb.inv_freq"] = Entry("F32", {3});
  EXPECT_EQ(Refusal(BuildTiny(/*tied=*/false), weights), "");
}

TEST(CheckWeightsTest, NamesWhatIsMissingExtraOrDifferentAllAtOnce) {
  TensorIndex weights = TinyWeights();
  weights.erase("model.layers.1.mlp.up_proj.weight");
  weights["model.layers.0.self_attn.k_proj.weight"].shape = {8, 6};
  weights["model.layers.0.self_attn.q_proj.bias"] = Entry("F32", {12});
  weights["model.norm.weight"].dtype = "I8";
  const absl::Status status = CheckWeights(BuildTiny(/*tied=*/false), weights);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("missing (1): \"model.layers.1.mlp.up_proj.weight\" [10, 8]"),
            HasSubstr("wrong shape (1): \"model.layers.0.self_attn.k_proj.weight\" is [8, 6], "
                      "expected [6, 8], in /models/m/model.safetensors"),
            HasSubstr("wrong dtype (1): \"model.norm.weight\" is I8, expected F32, BF16 or F16"),
            HasSubstr("unexpected (1): \"model.layers.0.self_attn.q_proj.bias\" [12] in /models")));
}

// A wrong model makes a mistake of every tensor: the message stays readable.
TEST(CheckWeightsTest, NamesTheFirstOfMany) {
  const std::string said = Refusal(BuildTiny(/*tied=*/false), TensorIndex());
  EXPECT_THAT(said, AllOf(HasSubstr("missing (21): \"model.embed_tokens.weight\""),
                          HasSubstr(", ..."), Not(HasSubstr("model.layers.1"))));
}

TensorIndex TinyAdapter() {
  TensorIndex index;
  for (const std::string layer : {"0", "1"}) {
    const std::string module = "base_model.model.model.layers." + layer + ".self_attn.q_proj.";
    index[module + "lora_A.weight"] = Entry("F32", {3, 8});
    index[module + "lora_B.weight"] = Entry("F32", {12, 3});
  }
  return index;
}

TEST(CheckAdapterTest, ComparesTheAdapterAlone) {
  const Program program = BuildTiny(/*tied=*/false, /*lora=*/true);
  TensorIndex adapter = TinyAdapter();
  EXPECT_TRUE(CheckAdapter(program, adapter).ok()) << CheckAdapter(program, adapter);
  const std::string key = "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight";
  adapter[key].shape = {4, 8};
  adapter["base_model.model.lm_head.weight"] = Entry("F32", {11, 8});
  EXPECT_THAT(std::string(CheckAdapter(program, adapter).message()),
              AllOf(HasSubstr("rank and target modules"),
                    HasSubstr("lora_A.weight\" is [4, 8], expected [3, 8]"),
                    HasSubstr("unexpected (1): \"base_model.model.lm_head.weight\"")));
  adapter.erase(key);
  EXPECT_THAT(std::string(CheckAdapter(program, adapter).message()),
              HasSubstr("missing (1): \"" + key + "\" [3, 8]"));
}

// Beside a tied matrix that is trained whole its second name is expected; else nobody reads it.
TEST(CheckAdapterTest, AHeadThatNobodyReadsIsRefused) {
  TensorIndex adapter = TinyAdapter();
  adapter["base_model.model.lm_head.weight"] = Entry("F32", {11, 8});
  EXPECT_THAT(std::string(CheckAdapter(BuildTiny(/*tied=*/true, /*lora=*/true), adapter).message()),
              HasSubstr("unexpected (1): \"base_model.model.lm_head.weight\""));
}

}  // namespace
}  // namespace snug::program
