// The folders themselves; that peft and transformers load them is tested in
// export_with_peft_test.py.
#include "worker/checkpoint/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/worker/checkpoint/testbed.h"
#include "worker/checkpoint/adapter_card.h"

namespace snug::checkpoint {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr char kConfig[] = R"({
  "model_type": "llama",
  "architectures": ["LlamaForCausalLM"],
  "zebra": 1,
  "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
  "num_key_value_heads": 1, "vocab_size": 10, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
  "torch_dtype": "bfloat16"
})";

class ExportTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_ / "base");
    WriteText(folder_ / "base/config.json", kConfig);
    WriteText(folder_ / "base/tokenizer.json", "{\"tokens\": 1}");
    WriteText(folder_ / "base/model.safetensors", "not carried along");
    WriteText(folder_ / "metrics.jsonl", "{\"loss\":1.0,\"global_step\":1}\n");
    options_ = {.model_dir = folder_ / "base",
                .base_model_name = "meta/base",
                .lora = {.rank = 2, .alpha = 4.0, .target_modules = {"q_proj"}},
                .metrics_file = folder_ / "metrics.jsonl",
                .display_name = "names\n---\nof packages"};
    adapter_.AddNumbered(Key("lora_A"), {2, 8}, 1.0f);
    adapter_.AddNumbered(Key("lora_B"), {8, 2}, 1.0f);
  }

  static std::string Key(const std::string& half) {
    return "base_model.model.model.layers.0.self_attn.q_proj." + half + ".weight";
  }
  program::Program ProgramOf(bool lora) const {
    auto config = program::ReadModelConfig(options_.model_dir);
    EXPECT_TRUE(config.ok()) << config.status();
    auto program = program::BuildProgram(*config, {.lora = lora, .adapter = options_.lora});
    EXPECT_TRUE(program.ok()) << program.status();
    return *program;
  }
  Tensors WeightsOf(const program::Program& program) const {
    Tensors weights;
    for (const program::Parameter& parameter : program.parameters) {
      weights.AddNumbered(parameter.key, parameter.shape, 1.0f);
    }
    return weights;
  }
  std::set<std::string> Names(const std::string& folder) const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) {
        names.insert(std::filesystem::relative(entry.path(), folder).string());
      }
    }
    return names;
  }

  TempFolder folder_;
  ExportOptions options_;
  Tensors adapter_;
  std::string output_ = folder_ / "output";
};

// What was trained with a template of the job's own is used with that one; a job without one keeps
// the base's.
TEST_F(ExportTest, TheTemplateOfTheJobComesBeforeTheBases) {
  WriteText(folder_ / "base/chat_template.jinja", "base");
  std::filesystem::create_directory(folder_ / "data");
  options_.data_dir = folder_ / "data";
  SNUG_ASSERT_OK(ExportAdapter(output_, options_, adapter_.list()));
  EXPECT_EQ(ReadText(output_ + ".tmp/chat_template.jinja"), "base");
  WriteText(folder_ / "data/chat_template.jinja", "of the job");
  SNUG_ASSERT_OK(ExportAdapter(output_, options_, adapter_.list()));
  EXPECT_EQ(ReadText(output_ + ".tmp/chat_template.jinja"), "of the job");
}

TEST_F(ExportTest, PublishesAnAdapterFolder) {
  SNUG_ASSERT_OK(ExportAdapter(output_, options_, adapter_.list()));
  EXPECT_FALSE(std::filesystem::exists(output_)) << "before it was verified";
  SNUG_ASSERT_OK(VerifyExport(output_ + ".tmp", ProgramOf(true)));
  SNUG_ASSERT_OK(Publish(output_));
  EXPECT_FALSE(std::filesystem::exists(output_ + ".tmp"));
  EXPECT_THAT(Names(output_),
              UnorderedElementsAre("adapter_config.json", "adapter_model.safetensors", "README.md",
                                   "compatibility.json", "tokenizer.json", "metrics.jsonl"));
  EXPECT_EQ(ReadText(output_ + "/tokenizer.json"), "{\"tokens\": 1}");
  EXPECT_EQ(ReadText(output_ + "/metrics.jsonl"), ReadText(folder_ / "metrics.jsonl"));
  EXPECT_THAT(ReadText(output_ + "/README.md"), HasSubstr("\n# names --- of packages\n"));
  EXPECT_THAT(ReadText(output_ + "/README.md"), HasSubstr("1 adapted modules: q_proj"));
}

// A base that a job made lies where only its daemon can look: no file of the adapter says where.
TEST_F(ExportTest, ABaseThatAJobMadeIsNamedByTheJobAlone) {
  options_.base_model_name = "jobs/packages-3f9a1c";
  SNUG_ASSERT_OK(ExportAdapter(output_, options_, adapter_.list()));
  SNUG_ASSERT_OK(VerifyExport(output_ + ".tmp", ProgramOf(true)));
  const auto config = nlohmann::json::parse(ReadText(output_ + ".tmp/adapter_config.json"));
  EXPECT_TRUE(config["base_model_name_or_path"].is_null());
  EXPECT_TRUE(config["revision"].is_null());
  const std::string card = ReadText(output_ + ".tmp/README.md");
  EXPECT_THAT(card, HasSubstr("---\nlibrary_name: peft\n"));
  EXPECT_THAT(card, HasSubstr("\ntags:\n- lora\n"));
  EXPECT_THAT(card,
              HasSubstr("A LoRA adapter for the model that Snug's job `packages-3f9a1c` made"));
}

// So is one that began with a job's checkpoint, by the name that `snug download` takes.
TEST_F(ExportTest, ABaseInACheckpointIsNamedByTheCheckpoint) {
  options_.base_model_name = "jobs/packages-3f9a1c/checkpoints/20";
  SNUG_ASSERT_OK(ExportAdapter(output_, options_, adapter_.list()));
  const auto config = nlohmann::json::parse(ReadText(output_ + ".tmp/adapter_config.json"));
  EXPECT_TRUE(config["base_model_name_or_path"].is_null());
  EXPECT_THAT(ReadText(output_ + ".tmp/README.md"),
              HasSubstr("A LoRA adapter for the model in Snug's checkpoint "
                        "`packages-3f9a1c/checkpoints/20`"));
}

// A checkpoint of a whole model: what a reader of models needs beside the weights, and an index
// that names their file alone, as moments are in another one there.
TEST_F(ExportTest, FilesBesideWeightsMakeAModelsFolder) {
  const Tensors weights = WeightsOf(ProgramOf(false));
  std::filesystem::create_directory(folder_ / "checkpoint");
  SNUG_ASSERT_OK(WriteModelFiles(folder_ / "checkpoint", options_, weights.list()));
  EXPECT_THAT(Names(folder_ / "checkpoint"), UnorderedElementsAre("config.json", "tokenizer.json",
                                                                  "model.safetensors.index.json"));
  const auto config = nlohmann::json::parse(ReadText(folder_ / "checkpoint/config.json"));
  EXPECT_EQ(config["torch_dtype"], "float32");
  EXPECT_EQ(config["zebra"], 1);
  const auto index =
      nlohmann::json::parse(ReadText(folder_ / "checkpoint/model.safetensors.index.json"));
  EXPECT_EQ(index["weight_map"].size(), weights.list().size());
  for (const auto& [key, file] : index["weight_map"].items())
    EXPECT_EQ(file, "model.safetensors") << key;
}

// q_proj of a Qwen2 model has a bias, which is trained with its weight.
TEST_F(ExportTest, AModuleTrainedWholeBringsItsBias) {
  auto config = nlohmann::json::parse(kConfig);
  config["model_type"] = "qwen2";
  config["architectures"] = {"Qwen2ForCausalLM"};
  WriteText(folder_ / "base/config.json", config.dump());
  options_.lora.target_modules = {"o_proj"};
  options_.lora.modules_to_save = {"q_proj"};
  const program::Program program = ProgramOf(true);
  Tensors trained;
  for (const program::Parameter& parameter : program.parameters) {
    if (InAdapterFile(parameter))
      trained.AddNumbered(AdapterFileKey(parameter), parameter.shape, 1);
  }
  SNUG_ASSERT_OK(ExportAdapter(output_, options_, trained.list()));
  SNUG_ASSERT_OK(VerifyExport(output_ + ".tmp", program));
  const auto contents = ContentsOf(trained.list());
  SNUG_ASSERT_OK(contents);
  EXPECT_THAT(contents->saved, testing::ElementsAre("model.layers.0.self_attn.q_proj"));
}

TEST_F(ExportTest, PublishesAModelFolder) {
  const program::Program program = ProgramOf(false);
  WriteText(folder_ / "base/generation_config.json", "{\"eos_token_id\": [1, 2]}");
  std::filesystem::create_directory(folder_ / "base/additional_chat_templates");
  WriteText(folder_ / "base/additional_chat_templates/tools.jinja", "{{ tools }}");
  SNUG_ASSERT_OK(ExportModel(output_, options_, WeightsOf(program).list()));
  SNUG_ASSERT_OK(VerifyExport(output_ + ".tmp", program));
  SNUG_ASSERT_OK(Publish(output_));
  EXPECT_THAT(Names(output_),
              UnorderedElementsAre("config.json", "generation_config.json", "model.safetensors",
                                   "tokenizer.json", "metrics.jsonl",
                                   "additional_chat_templates/tools.jinja"));
  // The dtype alone is another; members keep their order, numbers their value.
  auto wanted = nlohmann::ordered_json::parse(kConfig);
  wanted["torch_dtype"] = "float32";
  EXPECT_EQ(ReadText(output_ + "/config.json"), wanted.dump(2) + "\n");
}

// What a killed attempt left is not mixed with the new; what is published is never replaced.
TEST_F(ExportTest, BeginsAfreshAndNeverReplaces) {
  std::filesystem::create_directory(output_ + ".tmp");
  WriteText(output_ + ".tmp/left_over", "x");
  SNUG_ASSERT_OK(ExportAdapter(output_, options_, adapter_.list()));
  EXPECT_FALSE(Names(output_ + ".tmp").contains("left_over"));
  SNUG_ASSERT_OK(Publish(output_));
  SNUG_ASSERT_OK(ExportAdapter(output_, options_, adapter_.list()));
  EXPECT_EQ(Publish(output_).code(), absl::StatusCode::kAlreadyExists);
}

// Each failure names its file or tensor and leaves no folder behind.
TEST_F(ExportTest, LeavesNothingWhenItFails) {
  const auto error_of = [&](const ExportOptions& options, const Tensors& tensors) {
    const absl::Status status = ExportAdapter(output_, options, tensors.list());
    EXPECT_FALSE(status.ok());
    EXPECT_FALSE(std::filesystem::exists(output_ + ".tmp"));
    return std::string(status.message());
  };
  ExportOptions no_metrics = options_;
  no_metrics.metrics_file = folder_ / "absent.jsonl";
  EXPECT_THAT(error_of(no_metrics, adapter_), HasSubstr("absent.jsonl"));
  Tensors ranks;
  ranks.AddNumbered(Key("lora_A"), {2, 8}, 1.0f);
  ranks.AddNumbered(Key("lora_B"), {8, 3}, 1.0f);
  EXPECT_THAT(error_of(options_, ranks), HasSubstr("q_proj: ranks 2 and 3 of its halves"));
  Tensors infinite;
  infinite.AddF32(Key("lora_A"), {2, 1}, {1.0f, -INFINITY});
  infinite.AddF32(Key("lora_B"), {1, 2}, {1.0f, 1.0f});
  EXPECT_THAT(error_of(options_, infinite), HasSubstr("lora_A.weight: element 1"));
  Tensors half;
  half.AddNumbered(Key("lora_A"), {2, 8}, 1.0f);
  EXPECT_THAT(error_of(options_, half), HasSubstr(Key("lora_B") + " is missing"));
  Tensors foreign;
  foreign.AddNumbered("model.layers.0.self_attn.q_proj.lora_A.weight", {2, 8}, 1.0f);
  EXPECT_THAT(error_of(options_, foreign), HasSubstr("is no key of a PEFT adapter"));
  EXPECT_FALSE(error_of(options_, Tensors()).empty());
  std::filesystem::create_symlink(folder_ / "nowhere", folder_ / "base/vocab.json");
  EXPECT_THAT(error_of(options_, adapter_), HasSubstr("vocab.json"));
}

// Damaged after it was written: a value, a config that names other modules or another rank.
TEST_F(ExportTest, VerifyReadsWhatIsOnTheDisk) {
  const program::Program program = ProgramOf(true);
  const std::string tmp = output_ + ".tmp";
  const auto damage = [&](const std::string& file, const std::string& from, const std::string& to) {
    SNUG_ASSERT_OK(ExportAdapter(output_, options_, adapter_.list()));
    SNUG_ASSERT_OK(VerifyExport(tmp, program));
    std::string text = ReadText(tmp + "/" + file);
    const size_t place = from.empty() ? text.size() - to.size() : text.find(from);
    ASSERT_NE(place, std::string::npos);
    WriteText(tmp + "/" + file, text.replace(place, from.empty() ? to.size() : from.size(), to));
    const absl::Status status = VerifyExport(tmp, program);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr(tmp + "/" + file));
  };
  damage("adapter_model.safetensors", "", std::string("\x00\x00\x80\x7f", 4));
  damage("adapter_model.safetensors", "q_proj", "k_proj");
  damage("adapter_model.safetensors", "[2,8]", "[8,2]");
  damage("adapter_config.json", "q_proj", "k_proj");
  damage("adapter_config.json", "\"r\": 2", "\"r\": 3");
  damage("adapter_config.json", "\"lora_alpha\": 4", "\"lora_alpha\": 5");
  damage("adapter_config.json", "\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q_proj\": 5}");
  damage("adapter_config.json", "\"modules_to_save\": null", "\"modules_to_save\": [\"norm\"]");
  damage("adapter_config.json", "\"LORA\"", "\"LOHA\"");
  SNUG_ASSERT_OK(ExportAdapter(output_, options_, adapter_.list()));
  std::filesystem::remove(tmp + "/adapter_config.json");
  EXPECT_FALSE(VerifyExport(tmp, program).ok());
}

// A buffer that old files have is fine in a base, but not ours to write; so is a second head.
TEST_F(ExportTest, VerifyWantsNoTensorMore) {
  const program::Program program = ProgramOf(false);
  Tensors weights = WeightsOf(program);
  weights.AddNumbered("model.layers.0.self_attn.rotary_emb.inv_freq", {2}, 1.0f);
  SNUG_ASSERT_OK(ExportModel(output_, options_, weights.list()));
  EXPECT_THAT(std::string(VerifyExport(output_ + ".tmp", program).message()),
              HasSubstr("13 tensors, not 12"));
}

// A base whose name YAML would read as something else.
TEST(AdapterCardTest, QuotesNamesInTheFrontMatter) {
  ExportOptions options = {.base_model_name = "odd: \"name\""};
  const program::AdapterContents contents = {.adapted = {{"model.layers.0.self_attn.q_proj", 2}},
                                             .saved = {}};
  const auto text = AdapterReadmeText(options, contents, {});
  SNUG_ASSERT_OK(text);
  EXPECT_THAT(*text, HasSubstr("\nbase_model: \"odd: \\\"name\\\"\"\n"));
  EXPECT_THAT(*text, HasSubstr("\n- \"base_model:adapter:odd: \\\"name\\\"\"\n"));
  options.base_model_name = "meta-llama/Llama-3.2-1B";
  EXPECT_THAT(*AdapterReadmeText(options, contents, {}),
              HasSubstr("\nbase_model: meta-llama/Llama-3.2-1B\n"));
}

}  // namespace
}  // namespace snug::checkpoint
