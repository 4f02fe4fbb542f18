#include "worker/program/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "worker/program/rope_config.h"

namespace snug::program {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// As transformers 4.31 wrote it for Llama 2 70B, with its grouped queries.
constexpr char kLlama2[] = R"({
  "_name_or_path": "somewhere", "architectures": ["LlamaForCausalLM"], "bos_token_id": 1,
  "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 8192, "initializer_range": 0.02,
  "intermediate_size": 28672, "max_position_embeddings": 4096, "model_type": "llama",
  "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8, "pad_token_id": 0,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
  "tie_word_embeddings": false, "torch_dtype": "float16", "transformers_version": "4.31.0",
  "use_cache": true, "vocab_size": 32000
})";

// As transformers 4.45 wrote it for Llama 3.2 1B: tied, and the scaling of Llama 3.
constexpr char kLlama3[] = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": [128001, 128008], "head_dim": 64, "hidden_act": "silu",
  "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256
})";

json Tiny() {
  return {{"model_type", "llama"},  {"hidden_size", 64},        {"intermediate_size", 96},
          {"num_hidden_layers", 2}, {"num_attention_heads", 4}, {"vocab_size", 101},
          {"rms_norm_eps", 1e-5},   {"num_key_value_heads", 2}};
}

absl::StatusOr<ModelConfig> Parse(const json& config) {
  return ParseModelConfig(config.dump(), "config.json");
}

// What is said about `config`; "" when it is accepted.
std::string Refusal(const json& config) { return std::string(Parse(config).status().message()); }

json With(const std::string& field, const json& value) {
  json config = Tiny();
  config[field] = value;
  return config;
}

TEST(ModelConfigTest, ReadsLlama2InTheSpellingOfVersion4) {
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(kLlama2, "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model_type, "llama");
  EXPECT_EQ(config->layers, 80);
  EXPECT_EQ(config->width, 8192);
  EXPECT_EQ(config->heads, 64);
  EXPECT_EQ(config->kv_heads, 8);
  EXPECT_EQ(config->head_width, 128);
  EXPECT_EQ(config->mlp_width, 28672);
  EXPECT_EQ(config->vocabulary, 32000);
  EXPECT_EQ(config->max_positions, 4096);
  EXPECT_EQ(config->norm_epsilon, 1e-5);
  EXPECT_EQ(config->rope_theta, 1e4);
  EXPECT_EQ(config->rope_scaling.kind, RopeScaling::Kind::kDefault);
  EXPECT_FALSE(config->tied_embeddings);
}

void ExpectScalingOfLlama3(const ModelConfig& config) {
  EXPECT_EQ(config.rope_theta, 5e5);
  EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::kLlama3);
  EXPECT_EQ(config.rope_scaling.factor, 32.0);
  EXPECT_EQ(config.rope_scaling.low_freq_factor, 1.0);
  EXPECT_EQ(config.rope_scaling.high_freq_factor, 4.0);
  EXPECT_EQ(config.rope_scaling.original_max_positions, 8192);
}

TEST(ModelConfigTest, ReadsLlama3InTheSpellingOfVersion4) {
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(kLlama3, "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_EQ(config->head_width, 64);
  ExpectScalingOfLlama3(*config);
}

// Version 5 moves rope_theta into rope_parameters and says dtype.
TEST(ModelConfigTest, ReadsLlama3InTheSpellingOfVersion5) {
  json text = json::parse(kLlama3);
  text["rope_parameters"] = text["rope_scaling"];
  text["rope_parameters"]["rope_theta"] = text["rope_theta"];
  text["dtype"] = text["torch_dtype"];
  for (const char* old : {"rope_scaling", "rope_theta", "torch_dtype"}) text.erase(old);
  const absl::StatusOr<ModelConfig> config = Parse(text);
  ASSERT_TRUE(config.ok()) << config.status();
  ExpectScalingOfLlama3(*config);
}

TEST(ModelConfigTest, MissingFieldsMeanWhatTransformersMeans) {
  json text = Tiny();
  text.erase("num_key_value_heads");
  text.erase("rms_norm_eps");
  const absl::StatusOr<ModelConfig> config = Parse(text);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->kv_heads, 4);
  EXPECT_EQ(config->head_width, 16);
  EXPECT_EQ(config->max_positions, 2048);
  EXPECT_EQ(config->norm_epsilon, 1e-6);
  EXPECT_EQ(config->rope_theta, 1e4);
  EXPECT_FALSE(config->tied_embeddings);
}

// 4 heads of 6 in a model 64 wide: the attention is narrower than the model.
TEST(ModelConfigTest, HeadWidthNeedNotFollowFromTheModelWidth) {
  const absl::StatusOr<ModelConfig> config = Parse(With("head_dim", 6));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->head_width, 6);
  json uneven = With("head_dim", 10);
  uneven["hidden_size"] = 63;
  EXPECT_EQ(Refusal(uneven), "");
}

TEST(ModelConfigTest, ReadsLinearScalingUnderItsOldAndNewName) {
  for (const char* name : {"type", "rope_type"}) {
    const absl::StatusOr<ModelConfig> config =
        Parse(With("rope_scaling", {{name, "linear"}, {"factor", 2}}));
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->rope_scaling.kind, RopeScaling::Kind::kLinear);
    EXPECT_EQ(config->rope_scaling.factor, 2.0);
  }
}

TEST(ModelConfigTest, AcceptsWhatChangesNothing) {
  json config = Tiny();
  config["rope_scaling"] = nullptr;
  config["rope_parameters"] = {{"rope_theta", 1e6}};
  config["rope_theta"] = 1000000;
  config["partial_rotary_factor"] = 1.0;
  config["attention_dropout"] = nullptr;
  config["architectures"] = nullptr;
  config["quantization_config"] = nullptr;
  config["tokenizer_notes"] = {{"a", json::array({1, 2})}};
  const absl::StatusOr<ModelConfig> read = Parse(config);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->rope_theta, 1e6);
}

json Family(const std::string& type, const json& fields) {
  json config = Tiny();
  config["model_type"] = type;
  if (!fields.is_null()) config.update(fields);
  return config;
}

ModelConfig Read(const json& text) {
  const absl::StatusOr<ModelConfig> config = Parse(text);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(ModelConfig());
}

// Absent means 4096, null means none: transformers' class makes that difference.
TEST(ModelConfigTest, MistralSlidesOnEveryLayerUnlessTheWindowIsNull) {
  EXPECT_EQ(Read(Family("mistral", {})).window, 4096);
  EXPECT_TRUE(Read(Family("mistral", {{"sliding_window", 7}})).slides(1));
  const ModelConfig without = Read(Family("mistral", {{"sliding_window", nullptr}}));
  EXPECT_EQ(without.window, 0);
  EXPECT_FALSE(without.slides(1));
}

TEST(ModelConfigTest, QwenSlidesFromALayerOnWhereItIsAskedTo) {
  const json window = {{"sliding_window", 8}, {"max_window_layers", 1}};
  EXPECT_FALSE(Read(Family("qwen2", window)).slides(1));
  json asked = window;
  asked["use_sliding_window"] = true;
  EXPECT_EQ(Read(Family("qwen2", asked)).sliding, std::vector<bool>({false, true}));
  asked["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_EQ(Read(Family("qwen2", asked)).sliding, std::vector<bool>({true, false}));
  EXPECT_TRUE(Read(Family("qwen2", {})).qkv_bias);
  EXPECT_FALSE(Read(Family("qwen2", {})).output_bias);
  EXPECT_TRUE(Read(Family("qwen3", {})).head_norms);
  EXPECT_EQ(Read(Family("qwen3", {})).head_width, 128);
}

// As a job exports them: classes of its own loader, of a family that has one.
TEST(ModelConfigTest, AModelOfTwoStreamsSaysSoByItsType) {
  const json classes = {{"architectures", {"ReversibleLlamaForCausalLM"}}};
  const ModelConfig config = Read(Family("reversible_llama", classes));
  EXPECT_TRUE(config.reversible);
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_FALSE(Read(Family("llama", {})).reversible);
  EXPECT_FALSE(Parse(Family("llama", classes)).ok());
  EXPECT_FALSE(Parse(Family("reversible_gemma2", {})).ok());
}

// A job may ask for two streams whatever the files say, where there is a loader of what it exports.
TEST(ModelConfigTest, TwoStreamsAreOfFamiliesThatHaveALoader) {
  ModelConfig llama = Read(Family("llama", {}));
  EXPECT_TRUE(MakeReversible(llama).ok());
  EXPECT_TRUE(llama.reversible);
  ModelConfig classifier = Read(Family("llama", {}));
  classifier.task = Task::kSequenceClassification;
  EXPECT_THAT(MakeReversible(classifier).message(), HasSubstr("task: causal_lm"));
  ModelConfig gemma = Read(Family("llama", {}));
  gemma.model_type = "gemma2";
  EXPECT_EQ(MakeReversible(gemma).message(),
            "reversible: native is for llama, mistral, qwen2, qwen3; the model is gemma2");
}

TEST(ModelConfigTest, GemmasDefaultsAreThoseOfItsOwnClass) {
  const json four_layers = {{"num_hidden_layers", 7}, {"sliding_window", 5}};
  const ModelConfig two = Read(Family("gemma2", four_layers));
  EXPECT_EQ(two.attention_softcap, 50.0);
  EXPECT_EQ(two.logit_softcap, 30.0);
  EXPECT_EQ(two.head_width, 256);
  EXPECT_EQ(two.embedding_scale, 8.0);
  EXPECT_TRUE(two.tied_embeddings && two.post_norms && two.unit_offset_norms);
  EXPECT_TRUE(two.slides(0) && !two.slides(1) && two.slides(2));
  const ModelConfig three = Read(Family("gemma3_text", four_layers));
  EXPECT_EQ(three.attention_softcap, 0.0);
  EXPECT_EQ(three.logit_softcap, 0.0);
  EXPECT_EQ(three.rope_theta, 1e6);
  EXPECT_EQ(three.local_rope_theta, 1e4);
  EXPECT_TRUE(three.head_norms && three.slides(4) && !three.slides(5) && three.slides(6));
  json uncapped = four_layers;
  uncapped["attn_logit_softcapping"] = uncapped["final_logit_softcapping"] = nullptr;
  EXPECT_EQ(Read(Family("gemma2", uncapped)).attention_softcap, 0.0);
}

// 0.1 ln 4 + 1, unless the file says otherwise.
TEST(ModelConfigTest, ReadsYarn) {
  const json yarn = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
  const auto read = [&](const json& more) {
    json changed = yarn;
    if (!more.is_null()) changed.update(more);
    return Read(Family("qwen2", {{"rope_scaling", changed}})).rope_scaling;
  };
  EXPECT_EQ(read({}).kind, RopeScaling::Kind::kYarn);
  EXPECT_EQ(read({}).original_max_positions, 32768);
  EXPECT_NEAR(read({}).attention_factor, 1.1386294361119891, 1e-15);
  EXPECT_EQ(read({{"attention_factor", 0.5}}).attention_factor, 0.5);
  EXPECT_EQ(read({{"mscale", 1.0}, {"mscale_all_dim", 1.0}}).attention_factor, 1.0);
  EXPECT_FALSE(read({{"truncate", false}}).truncate);
}

struct Refused {
  std::string family;
  json fields;
  std::string said;
};

// What the scaling is there for. Llama 2's positions are 4096.
TEST(ModelConfigTest, ScalingStretchesTheLongestSequence) {
  const auto longest = [](const json& scaling) {
    json text = json::parse(kLlama2);
    text["rope_scaling"] = scaling;
    return LongestSequence(*ParseModelConfig(text.dump(), "config.json"));
  };
  const char* original = "original_max_position_embeddings";
  EXPECT_EQ(longest(nullptr), 4096);
  EXPECT_EQ(longest({{"type", "linear"}, {"factor", 2.5}}), 10240);
  EXPECT_EQ(longest({{"type", "yarn"}, {"factor", 4.0}}), 16384);
  EXPECT_EQ(longest({{"type", "yarn"}, {"factor", 3.0}, {original, 2048}}), 6144);
  EXPECT_EQ(longest({{"type", "yarn"}, {"factor", 1.5}, {original, 2048}}), 4096);
  EXPECT_EQ(longest({{"rope_type", "llama3"},
                     {"factor", 8.0},
                     {"low_freq_factor", 1.0},
                     {"high_freq_factor", 4.0},
                     {original, 1024}}),
            8192);
}

TEST(ModelConfigTest, RefusesWhatAFamilyDoesNotHave) {
  const json long_rope = {{"rope_type", "longrope"}};
  const Refused cases[] = {
      {"mistral", {{"layer_types", {"full_attention"}}}, "layer_types is [\"full_attention\"]"},
      {"mistral", {{"sliding_window", 0}}, "sliding_window is 0; accepted: an integer from 1"},
      {"qwen2",
       {{"layer_types", {"sliding_attention", "full_attention"}}},
       "accepted: a number of tokens: there are layers that slide"},
      {"qwen2", {{"layer_types", {"full_attention"}}}, "accepted: a list of 2 names"},
      {"qwen3",
       {{"layer_types", {"full_attention", "chunked_attention"}}},
       "accepted: \"full_attention\", \"sliding_attention\""},
      {"gemma2", {{"hidden_activation", "gelu"}}, "accepted: \"gelu_pytorch_tanh\""},
      {"gemma2", {{"use_bidirectional_attention", true}}, "accepted: false"},
      {"gemma3_text", {{"attn_logit_softcapping", 50.0}}, "accepted: no such field"},
      {"gemma3_text",
       {{"rope_parameters", {{"sliding_attention", {{"rope_type", "linear"}}}}}},
       "rope_parameters.sliding_attention.rope_type is \"linear\"; accepted: \"default\""},
      {"phi3",
       {{"rope_scaling", long_rope}},
       "accepted: \"default\" (not what changes with the lengths in a batch)"},
      {"phi3", {{"partial_rotary_factor", 0.7}}, "accepted: an even part of a head of 16"},
      {"phi3", {{"resid_pdrop", 0.1}}, "resid_pdrop is 0.1; accepted: 0"},
      {"gemma3", {}, "model_type is \"gemma3\"; accepted: \"llama\""},
  };
  for (const auto& [family, fields, said] : cases) {
    EXPECT_THAT(Refusal(Family(family, fields)), HasSubstr(said)) << family << " " << fields;
  }
}

struct BadField {
  std::string field;
  json value;
  std::string said;
};

// Each of these changes what is computed, or cannot be computed at all.
TEST(ModelConfigTest, RefusesOneFieldByNameAndValueAndSaysWhatIsAccepted) {
  const json llama3 = json::parse(kLlama3)["rope_scaling"];
  const auto scaling = [&](const std::string& key, const json& value) {
    json changed = llama3;
    changed[key] = value;
    return changed;
  };
  const std::vector<BadField> cases = {
      {"model_type", "gpt2", R"(model_type is "gpt2"; accepted: "llama", "mistral", "qwen2")"},
      {"architectures",
       {"LlamaForTokenClassification"},
       R"(accepted: ["LlamaForCausalLM"], ["LlamaForSequenceClassification"])"},
      {"hidden_act", "gelu", R"(hidden_act is "gelu"; accepted: "silu")"},
      {"attention_bias", 1, "attention_bias is 1; accepted: true, false"},
      {"attention_dropout", 1.0, "attention_dropout is 1.0; accepted: a number from 0 to 0.99"},
      {"pretraining_tp", 2, "pretraining_tp is 2; accepted: 1"},
      {"is_causal", false, "is_causal is false; accepted: true"},
      {"quantization_config", {{"bits", 4}}, R"(is {"bits":4}; accepted: no such field)"},
      {"quantization_config", {{"load_in_4bit", true}}, "bnb_4bit_quant_type nf4"},
      {"quantization_config", {{"quant_method", "gptq"}, {"load_in_8bit", true}}, "bitsandbytes'"},
      {"sliding_window", 4096, "sliding_window is 4096; accepted: no such field"},
      {"per_layer_config", {{"0", 1}}, "accepted: no such field"},
      {"torch_dtype", "float8_e4m3fn", R"(accepted: "float32", "bfloat16", "float16")"},
      {"num_hidden_layers", 1'000'000'000, "1000000000; accepted: an integer from 1 to 1024"},
      {"num_hidden_layers", 2.0, "num_hidden_layers is 2.0; accepted: an integer"},
      {"num_hidden_layers", "2", R"(num_hidden_layers is "2"; accepted: an integer)"},
      {"hidden_size", -1, "hidden_size is -1; accepted: an integer from 1 to 65536"},
      {"hidden_size", 65'537, "hidden_size is 65537"},
      {"hidden_size", 66, "hidden_size / num_attention_heads = 66 / 4 is none"},
      {"hidden_size", 12, "hidden_size / num_attention_heads = 12 / 4 is none"},
      {"intermediate_size", INT64_MAX, "intermediate_size is 9223372036854775807"},
      {"intermediate_size", UINT64_MAX, "intermediate_size is 18446744073709551615"},
      {"num_attention_heads", 0, "num_attention_heads is 0; accepted: an integer from 1 to 1024"},
      {"num_attention_heads", nullptr, "num_attention_heads is missing"},
      {"num_key_value_heads", 3, "is 3; accepted: a divisor of num_attention_heads = 4"},
      {"num_key_value_heads", 8, "is 8; accepted: a divisor of num_attention_heads = 4"},
      {"head_dim", 7, "head_dim is 7; accepted: an even number"},
      {"vocab_size", 4'000'001, "vocab_size is 4000001"},
      {"max_position_embeddings", 0, "max_position_embeddings is 0"},
      {"rms_norm_eps", -1e-6, "rms_norm_eps is -1e-06; accepted: a number from 0 to 1"},
      {"rms_norm_eps", true, "rms_norm_eps is true"},
      {"tie_word_embeddings", 1, "tie_word_embeddings is 1; accepted: true, false"},
      {"rope_theta", 0, "rope_theta is 0; accepted: a number"},
      {"partial_rotary_factor", 0.5, "partial_rotary_factor is 0.5; accepted: 1"},
      {"rope_scaling", "linear", R"(rope_scaling is "linear"; accepted: an object, null)"},
      {"rope_scaling", scaling("rope_type", "dynamic"),
       R"("yarn" (not what changes with the lengths in a batch))"},
      {"rope_parameters", scaling("rope_type", "yarn"),
       R"(high_freq_factor is 4.0; accepted: no such field with rope_type "yarn")"},
      {"rope_scaling", scaling("rope_type", "longrope"), R"(rope_type is "longrope")"},
      {"rope_scaling", scaling("rope_type", 3), "rope_scaling.rope_type is 3"},
      {"rope_scaling", scaling("type", "linear"),
       R"(rope_scaling.type is "linear"; accepted: the)"},
      {"rope_scaling", scaling("factor", 0.5), "rope_scaling.factor is 0.5"},
      {"rope_scaling", scaling("factor", nullptr), "rope_scaling.factor is missing"},
      {"rope_scaling", scaling("high_freq_factor", 1.0), "accepted: more than low_freq_factor = 1"},
      {"rope_scaling", scaling("original_max_position_embeddings", nullptr),
       "rope_scaling.original_max_position_embeddings is missing"},
      {"rope_scaling", scaling("beta_fast", 32), "rope_scaling.beta_fast is 32; accepted: no such"},
      {"rope_scaling", {{"factor", 2.0}}, R"(accepted: no such field with rope_type "default")"},
      {"rope_parameters", {{"full_attention", llama3}}, "rope_parameters.full_attention is {"},
      {"rope_parameters", scaling("partial_rotary_factor", 0.5), "accepted: 1"},
  };
  for (const BadField& bad : cases) {
    const std::string said = Refusal(With(bad.field, bad.value));
    EXPECT_THAT(said, HasSubstr(bad.said)) << bad.field << ": " << bad.value;
    EXPECT_EQ(Parse(With(bad.field, bad.value)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// Versions 4 and 5 would train different models from such a file.
TEST(ModelConfigTest, RefusesWhatIsSaidTwiceAndDifferently) {
  json config = With("rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}});
  config["rope_theta"] = 1e4;
  EXPECT_THAT(Refusal(config),
              HasSubstr("rope_parameters.rope_theta is 500000.0; accepted: 10000"));
  config["rope_theta"] = 5e5;
  EXPECT_EQ(Refusal(config), "");
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_THAT(Refusal(config), HasSubstr("rope_scaling and rope_parameters differ"));
  json llama3 = With("rope_scaling", json::parse(kLlama3)["rope_scaling"]);
  llama3["original_max_position_embeddings"] = 8192;
  EXPECT_EQ(Refusal(llama3), "");
  llama3["original_max_position_embeddings"] = 4096;
  EXPECT_THAT(Refusal(llama3), HasSubstr("original_max_position_embeddings is 4096"));
}

TEST(ModelConfigTest, TheLengthBeforeScalingMayStandBesideTheScaling) {
  json scaling = json::parse(kLlama3)["rope_scaling"];
  scaling.erase("original_max_position_embeddings");
  json text = With("rope_scaling", scaling);
  text["original_max_position_embeddings"] = 4096;
  const absl::StatusOr<ModelConfig> config = Parse(text);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rope_scaling.original_max_positions, 4096);
}

// F-44
TEST(ModelConfigTest, ListsAllViolationsAtOnce) {
  json config = Tiny();
  config["num_hidden_layers"] = 1'000'000'000;
  config["hidden_size"] = -1;
  config["num_attention_heads"] = 0;
  config["hidden_act"] = "relu";
  config.erase("vocab_size");
  EXPECT_THAT(Refusal(config),
              AllOf(HasSubstr("config.json:"), HasSubstr("num_hidden_layers is 1000000000"),
                    HasSubstr("hidden_size is -1"), HasSubstr("num_attention_heads is 0"),
                    HasSubstr(R"(hidden_act is "relu")"), HasSubstr("vocab_size is missing"),
                    Not(HasSubstr("head_dim"))));
}

// F-45: every size is within its limit; their product is 10^14.
TEST(ModelConfigTest, RefusesMoreParametersThanAnyModelHas) {
  json config = With("hidden_size", 65'536);
  config["intermediate_size"] = 1'048'576;
  config["num_hidden_layers"] = 1'024;
  config["num_attention_heads"] = 1'024;
  config["num_key_value_heads"] = 1'024;
  config["head_dim"] = 65'536;
  EXPECT_THAT(Refusal(config), HasSubstr("parameters; accepted: at most 10000000000000"));
}

std::string RefusalOfText(const std::string& text) {
  return std::string(ParseModelConfig(text, "config.json").status().message());
}

TEST(ModelConfigTest, RefusesBrokenJsonWithItsPlace) {
  EXPECT_THAT(RefusalOfText(""), HasSubstr("config.json: parse error at line 1, column 1"));
  EXPECT_THAT(RefusalOfText("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(RefusalOfText("{\"a\": 1,\n}"), HasSubstr("line 2, column 1"));
  EXPECT_THAT(RefusalOfText("{\"a\": 1} x"), HasSubstr("parse error"));
  EXPECT_THAT(RefusalOfText("{\"a\": \"\xff\"}"), HasSubstr("invalid string: ill-formed UTF-8"));
  EXPECT_THAT(RefusalOfText(R"({"a": "\ud800"})"), HasSubstr("surrogate"));
  EXPECT_THAT(RefusalOfText(std::string("{\"a\": \0}", 8)), HasSubstr("parse error"));
  EXPECT_THAT(RefusalOfText(R"({"rope": {"theta": 1e400}})"), HasSubstr("\"rope.theta\": number"));
  EXPECT_THAT(RefusalOfText(R"({"a": {"b": 1, "b": 2}})"), HasSubstr("\"a.b\": is there twice"));
  EXPECT_THAT(RefusalOfText(R"({"a": 1, "\u0061": 2})"), HasSubstr("\"a\": is there twice"));
}

TEST(ModelConfigTest, RefusesJsonBeyondItsLimits) {
  const auto nested = [](int depth) {
    return "{\"a\": " + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_THAT(RefusalOfText(nested(32)), Not(HasSubstr("nested")));
  EXPECT_THAT(RefusalOfText(nested(33)), HasSubstr("nested deeper than 32 levels"));
  EXPECT_THAT(RefusalOfText(std::string(1'000'000, '[')), HasSubstr("nested deeper than 32"));
  EXPECT_THAT(RefusalOfText(std::string((1 << 20) + 1, ' ')), HasSubstr("at most 1048576"));
  std::string many = "{\"a\": [0";
  for (int i = 0; i < 100'000; ++i) many += ",0";
  EXPECT_THAT(RefusalOfText(many + "]}"), HasSubstr("\"a\": more than 100000 values"));
}

TEST(ModelConfigTest, ReadsAFileAndNamesItInErrors) {
  const std::filesystem::path dir = std::filesystem::path(::testing::TempDir()) / "model_config";
  std::filesystem::create_directories(dir);
  const std::filesystem::path file = dir / "config.json";
  std::filesystem::remove_all(file);
  EXPECT_EQ(ReadModelConfig(dir).status().code(), absl::StatusCode::kNotFound);
  std::ofstream(file) << Tiny().dump();
  const absl::StatusOr<ModelConfig> config = ReadModelConfig(dir);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->width, 64);
  std::ofstream(file) << With("hidden_act", "gelu").dump();
  EXPECT_THAT(std::string(ReadModelConfig(dir).status().message()), HasSubstr(file.string()));
  std::filesystem::remove_all(file);
  std::filesystem::create_directory(file);
  EXPECT_THAT(std::string(ReadModelConfig(dir).status().message()),
              HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace snug::program
