// A head for classes in the place of that for tokens: which one a job gets, what it must be trained
// with, and that every plan gives the gradients that finite differences say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/program/models.h"
#include "tests/worker/program/plan_checks.h"
#include "worker/program/files/adapter_export.h"
#include "worker/program/files/packed_tensors.h"
#include "worker/program/files/safetensors.h"
#include "worker/program/lower.h"
#include "worker/program/planning/predict.h"

namespace snug::program {
namespace {

using ::testing::HasSubstr;

constexpr int kPlans = 300;
constexpr int64_t kLabels = 4;
const LlamaSizes kTiny = {3, 16, 4, 2, 12, 11};

ModelConfig Classifying(ModelConfig config) {
  EXPECT_TRUE(ChooseTask({Task::kSequenceClassification, kLabels}, config).ok());
  return config;
}

TrainingMode LoraOfScore() {
  TrainingMode mode = LoraMode();
  mode.adapter.rank = 2;
  mode.adapter.alpha = 1.0;
  mode.adapter.modules_to_save = {"score"};
  return mode;
}

TEST(ClassificationTest, EveryPlanOfEveryFamilyGivesTheGradients) {
  std::mt19937 random(1);
  for (const std::string& family : FamilyNames()) {
    SCOPED_TRACE(family);
    for (const TrainingMode& mode : {FullMode(), LoraOfScore()}) {
      const auto program = BuildProgram(Classifying(FamilyShape(family, kTiny)), mode);
      ASSERT_TRUE(program.ok()) << program.status();
      ExpectAnyPlanGivesTheGradientsOfKeep(*program, kPlans / 10, random);
      ExpectFiniteDifferences(*program, random);
    }
  }
}

TEST(ClassificationTest, EveryPlanGivesTheGradients) {
  std::mt19937 random(2);
  const Program program = *BuildProgram(Classifying(LlamaShape(kTiny)), FullMode());
  ExpectAnyPlanGivesTheGradientsOfKeep(program, kPlans, random);
}

TEST(ClassificationTest, EveryPlanOfEveryEncoderGivesTheGradients) {
  std::mt19937 random(3);
  for (const char* family : {"bert", "roberta", "distilbert"}) {
    SCOPED_TRACE(family);
    TrainingMode lora = LoraOfScore();
    lora.adapter.modules_to_save = {"classifier"};
    for (const TrainingMode& mode : {FullMode(), lora}) {
      const auto program = BuildProgram(EncoderShape(family, {3, 16, 4, 4, 12, 11}), mode);
      ASSERT_TRUE(program.ok()) << program.status();
      ExpectAnyPlanGivesTheGradientsOfKeep(*program, kPlans / 10, random);
      ExpectFiniteDifferences(*program, random);
    }
  }
}

TEST(ClassificationTest, EveryPlanOfImagesGivesTheGradients) {
  std::mt19937 random(6);
  for (const char* family : {"vit", "deit"}) {
    SCOPED_TRACE(family);
    TrainingMode lora = LoraOfScore();
    lora.adapter.modules_to_save = {"classifier"};
    for (const TrainingMode& mode : {FullMode(), lora}) {
      const auto program = BuildProgram(ImageShape(family, {3, 16, 4, 4, 12, 11}), mode);
      ASSERT_TRUE(program.ok()) << program.status();
      ExpectAnyPlanGivesTheGradientsOfKeep(*program, kPlans / 10, random);
      ExpectFiniteDifferences(*program, random);
    }
  }
}

// The model's files spell a layer as transformers 4 did, adapters as its class does now.
TEST(ClassificationTest, AnImagesAdapterHasTheNamesOfTheClass) {
  TrainingMode lora = LoraOfScore();
  lora.adapter.target_modules = {"q_proj"};
  lora.adapter.modules_to_save = {"classifier", "layernorm_after"};
  const auto program = BuildProgram(ImageShape("deit", {1, 16, 4, 4, 12, 11}), lora);
  ASSERT_TRUE(program.ok()) << program.status();
  std::vector<std::string> files, adapter;
  for (const Parameter& p : program->parameters) {
    if (InAdapterFile(p)) adapter.push_back(AdapterFileKey(p));
    if (!p.adapter) files.push_back(p.key);
  }
  EXPECT_THAT(adapter,
              ::testing::UnorderedElementsAre(
                  "base_model.model.deit.layers.0.attention.q_proj.lora_A.weight",
                  "base_model.model.deit.layers.0.attention.q_proj.lora_B.weight",
                  "base_model.model.deit.layers.0.layernorm_after.weight",
                  "base_model.model.deit.layers.0.layernorm_after.bias",
                  "base_model.model.classifier.weight", "base_model.model.classifier.bias"));
  for (const char* key :
       {"deit.embeddings.distillation_token", "deit.embeddings.patch_embeddings.projection.weight",
        "deit.encoder.layer.0.attention.attention.query.weight",
        "deit.encoder.layer.0.layernorm_after.bias", "deit.encoder.layer.0.output.dense.weight"})
    EXPECT_THAT(files, ::testing::Contains(key));
}

// Of every token that has a class, by the head alone.
TEST(ClassificationTest, EveryPlanOfTokenClassesGivesTheGradients) {
  std::mt19937 random(5);
  for (const char* family : {"bert", "roberta", "distilbert"}) {
    SCOPED_TRACE(family);
    ModelConfig config = EncoderShape(family, {3, 16, 4, 4, 12, 11});
    config.task = Task::kTokenClassification;
    const auto program = BuildProgram(config, FullMode());
    ASSERT_TRUE(program.ok()) << program.status();
    std::vector<std::string> keys;
    for (const Parameter& p : program->parameters) keys.push_back(p.key);
    EXPECT_THAT(keys, ::testing::Contains("classifier.weight"));
    EXPECT_THAT(keys, ::testing::Not(::testing::Contains(HasSubstr("pooler"))));
    ExpectAnyPlanGivesTheGradientsOfKeep(*program, kPlans / 10, random);
    ExpectFiniteDifferences(*program, random);
  }
}

TEST(ClassificationTest, AnEncodersGradientsAreTheSameReleased) {
  std::mt19937 random(4);
  TrainingMode releasing = FullMode();
  releasing.release_gradients = true;
  for (const char* family : {"bert", "roberta"}) {
    SCOPED_TRACE(family);
    const ModelConfig config = EncoderShape(family, {3, 16, 4, 4, 12, 11});
    const Program kept = *BuildProgram(config, FullMode());
    ExpectTheSameReleased(kept, *BuildProgram(config, releasing), 20, random);
  }
}

// Rows of a head's logits, and what they cost, are those of documents and classes.
TEST(ClassificationTest, TheHeadIsOfDocumentsAndClasses) {
  ModelConfig config = Llama125M();
  const LowerOptions options = {.key = {.tokens = 2048, .documents = 8, .longest_document = 256}};
  const auto work_of_head = [&](const Program& program) {
    const Tape tape = *Lower(program, RecomputePlan(program, 0), options);
    double flops = 0.0;
    for (const Instruction& line : tape.instructions) {
      if (line.op != nullptr && line.op->code == OpCode::kHeadLoss) flops += line.work.flops();
    }
    return flops;
  };
  const double of_tokens = work_of_head(*BuildProgram(config, FullMode()));
  const double of_documents = work_of_head(*BuildProgram(Classifying(config), FullMode()));
  EXPECT_DOUBLE_EQ(of_tokens, 3.0 * 2 * 2048 * 768 * 32000);
  EXPECT_DOUBLE_EQ(of_documents, 3.0 * 2 * 8 * 768 * kLabels);
}

TEST(ClassificationTest, ANewHeadUntiesTheEmbedding) {
  ModelConfig config = LlamaShape(kTiny);
  config.tied_embeddings = true;
  config.logit_softcap = 30.0;
  const Program program = *BuildProgram(Classifying(config), FullMode());
  EXPECT_TRUE(program.config.new_head);
  EXPECT_EQ(program.parameters.back().key, "score.weight");
  EXPECT_EQ(program.parameters.back().shape, (std::vector<int64_t>{kLabels, 16}));
  EXPECT_EQ(
      program.type_of(static_cast<int>(program.blocks.size()) - 1).ops.back().attributes.softcap,
      0.0);
}

std::string ErrorOf(const TaskChoice& choice, ModelConfig config) {
  return std::string(ChooseTask(choice, config).message());
}

TEST(ClassificationTest, TheJobMustFitTheModelsHead) {
  const ModelConfig causal = LlamaShape(kTiny);
  ModelConfig classifier = causal;
  classifier.task = Task::kSequenceClassification;
  classifier.labels = 3;
  EXPECT_THAT(ErrorOf({Task::kCausalLm, 0}, classifier),
              HasSubstr("task: config.json names LlamaForSequenceClassification"));
  EXPECT_THAT(ErrorOf({{}, 4}, classifier), HasSubstr("num_labels: 4, but the model's head has 3"));
  EXPECT_THAT(ErrorOf({{}, 4}, causal), HasSubstr("num_labels: is of task: sequence_class"));
  EXPECT_THAT(ErrorOf({Task::kSequenceClassification, 1, Problem::kSingleLabel}, causal),
              HasSubstr("num_labels: 1 is outside [2, 65536] of problem_type: single_label"));
  EXPECT_THAT(ErrorOf({{}, 0, Problem::kRegression}, causal),
              HasSubstr("problem_type: is of task: sequence_class"));
  EXPECT_EQ(ErrorOf({{}, 3}, classifier), "");
  ModelConfig config = causal;
  ASSERT_TRUE(ChooseTask({Task::kSequenceClassification, 0}, config).ok());
  EXPECT_EQ(config.labels, 2);
}

TEST(ClassificationTest, AnImagesHeadMayBeReplaced) {
  ModelConfig config = ImageShape("vit", {1, 16, 4, 4, 12, 11});
  EXPECT_EQ(ErrorOf({Task::kImageClassification, 4}, config), "");
  ASSERT_TRUE(ChooseTask({Task::kImageClassification, 4}, config).ok());
  EXPECT_FALSE(config.new_head);
  ASSERT_TRUE(ChooseTask({{}, 7}, config).ok());
  EXPECT_TRUE(config.new_head);
  EXPECT_EQ(config.labels, 7);
  EXPECT_THAT(ErrorOf({Task::kImageClassification, 1}, config), HasSubstr("num_labels: 1"));
  EXPECT_THAT(ErrorOf({Task::kSequenceClassification, 4}, config), HasSubstr("which reads images"));
  EXPECT_THAT(ErrorOf({Task::kCausalLm, 0}, config), HasSubstr("which reads images"));
  EXPECT_THAT(ErrorOf({Task::kImageClassification, 4}, LlamaShape(kTiny)),
              HasSubstr("which reads no images"));
}

// One output without a word is a regression, as in transformers; the job's word goes before.
TEST(ClassificationTest, TheProblemSaysHowManyOutputsThereAre) {
  struct Expected {
    TaskChoice choice;
    Problem problem;
    int64_t labels;
    Loss loss;
  };
  const auto task = Task::kSequenceClassification;
  for (const auto& [choice, problem, labels, loss] : std::vector<Expected>{
           {{task}, Problem::kSingleLabel, 2, Loss::kCrossEntropy},
           {{task, 1}, Problem::kRegression, 1, Loss::kSquare},
           {{task, 0, Problem::kRegression}, Problem::kRegression, 1, Loss::kSquare},
           {{task, 3, Problem::kRegression}, Problem::kRegression, 3, Loss::kSquare},
           {{task, 0, Problem::kMultiLabel}, Problem::kMultiLabel, 2, Loss::kBinary}}) {
    ModelConfig config = LlamaShape(kTiny);
    ASSERT_TRUE(ChooseTask(choice, config).ok());
    EXPECT_EQ(config.problem, problem);
    EXPECT_EQ(config.labels, labels);
    const Program program = *BuildProgram(config, FullMode());
    const Op& head = program.types.back().ops.back();
    EXPECT_EQ(head.attributes.loss, loss);
    const int64_t targets = loss == Loss::kCrossEntropy ? 0 : 64;  // Of 3 documents, aligned.
    config.problem = Problem::kSingleLabel;
    const Program classes = *BuildProgram(config, FullMode());
    const TapeKey key = {.tokens = 12, .documents = 3, .longest_document = 4};
    EXPECT_EQ(BatchBytes(program, key) - BatchBytes(classes, key), targets);
  }
  for (const Problem problem : {Problem::kSingleLabel, Problem::kMultiLabel, Problem::kRegression})
    EXPECT_EQ(ProblemOfName(NameOf(problem)), problem);
  EXPECT_EQ(ProblemOfName("ranking"), std::nullopt);
}

// PEFT trains it whole, whatever the adapter is of, and names both heads that there are.
TEST(ClassificationTest, AnAdapterSavesTheHead) {
  const ModelConfig config = Classifying(LlamaShape(kTiny));
  EXPECT_THAT(std::string(BuildProgram(config, LoraMode()).status().message()),
              HasSubstr("lora.modules_to_save: lacks score"));
  TrainingMode mode = LoraOfScore();
  mode.adapter.modules_to_save = {"classifier", "score"};
  const auto program = BuildProgram(config, mode);
  ASSERT_TRUE(program.ok()) << program.status();
  const Parameter& score = program->parameters.back();
  EXPECT_TRUE(score.saved && score.trainable);
  EXPECT_EQ(AdapterFileKey(score), "base_model.model.score.weight");
  const AdapterContents contents = *ContentsOf(AdapterTensorsOf(*program));
  const std::string text = *AdapterConfigText(mode.adapter, "/base", contents, program->config);
  EXPECT_THAT(text, HasSubstr("\"task_type\": \"SEQ_CLS\""));
  mode.adapter.modules_to_save = {"classifier"};
  EXPECT_FALSE(BuildProgram(config, mode).ok());
  EXPECT_FALSE(BuildProgram(LlamaShape(kTiny), mode).ok());
}

// The head may be missing in the files that training starts from, and only there.
TEST(ClassificationTest, TheFilesOfALanguageModelAreEnough) {
  const ModelConfig causal = LlamaShape(kTiny);
  TensorIndex index;
  const Program language_model = *BuildProgram(causal, {});
  for (const Parameter& p : language_model.parameters)
    index[p.key] = {.dtype = "F32", .shape = p.shape};
  const Program program = *BuildProgram(Classifying(causal), FullMode());
  EXPECT_TRUE(CheckBaseWeights(program, index).ok()) << CheckBaseWeights(program, index);
  EXPECT_THAT(std::string(CheckWeights(program, index).message()), HasSubstr("score.weight"));
  index["score.weight"] = {.dtype = "F32", .shape = {3, 16}};
  EXPECT_THAT(std::string(CheckBaseWeights(program, index).message()),
              HasSubstr("\"score.weight\" is [3, 16], expected [4, 16]"));
}

// bitsandbytes' codes of 8 bits.
TensorEntry InCodes(const Parameter& parameter) {
  PackedTensor packed{.kind = Quantization::kInt8};
  packed.absmax = {.dtype = "F32", .shape = {parameter.shape[0]}};
  TensorEntry entry = {.dtype = "I8", .shape = parameter.shape};
  entry.packed = std::make_shared<const PackedTensor>(packed);
  return entry;
}

// transformers leaves the head of a decoder out of the codes, and BERT's in some versions alone.
TEST(ClassificationTest, AHeadThatIsTrainedIsInNoCodes) {
  ModelConfig config = Classifying(LlamaShape(kTiny));
  config.new_head = false;
  config.quantization = Quantization::kInt8;
  config.outer_codes = {"score"};
  const Program program = *BuildProgram(config, LoraOfScore());
  TensorIndex index;
  for (const Parameter& p : program.parameters) {
    if (p.adapter) continue;
    const bool codes = p.quantization != Quantization::kNone;
    index[p.key] = codes ? InCodes(p) : TensorEntry{.dtype = "F32", .shape = p.shape};
  }
  EXPECT_TRUE(CheckBaseWeights(program, index).ok()) << CheckBaseWeights(program, index);
  index["score.weight"] = InCodes(program.parameters.back());
  const absl::Status refused = CheckBaseWeights(program, index);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("\"score.weight\" is I8, expected F32, BF16 or F16 (the job trains it "
                        "whole: lora.modules_to_save)"));
}

constexpr char kConfig[] = R"({
  "architectures": ["LlamaForSequenceClassification"], "model_type": "llama", "hidden_size": 64,
  "intermediate_size": 112, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 131,
  "pad_token_id": 7, "initializer_range": 0.05, "tie_word_embeddings": true,
  "id2label": {"0": "a", "1": "b", "2": "c"}, "problem_type": PROBLEM})";

absl::StatusOr<ModelConfig> Parsed(const std::string& problem) {
  std::string text = kConfig;
  text.replace(text.find("PROBLEM"), 7, problem);
  return ParseModelConfig(text, "config.json");
}

TEST(ClassificationTest, ConfigsOfClassifiersAreRead) {
  for (const char* problem : {"null", "\"single_label_classification\""}) {
    const auto config = Parsed(problem);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->task, Task::kSequenceClassification);
    EXPECT_EQ(config->labels, 3);
    EXPECT_EQ(config->pad_token, 7);
    EXPECT_EQ(config->head_spread, 0.05);
    EXPECT_FALSE(config->tied_embeddings);
    EXPECT_FALSE(config->new_head);
    EXPECT_EQ(ArchitectureOf(*config), "LlamaForSequenceClassification");
  }
  EXPECT_EQ(Parsed("\"regression\"")->problem, Problem::kRegression);
  EXPECT_EQ(Parsed("\"multi_label_classification\"")->problem, Problem::kMultiLabel);
  EXPECT_THAT(std::string(Parsed("\"ranking\"").status().message()),
              HasSubstr("problem_type is \"ranking\"; accepted: single_label_classification, "));
}

absl::StatusOr<ModelConfig> ParsedEncoder(const std::string& type, const std::string& class_name,
                                          const std::string& more = "") {
  return ParseModelConfig(
      absl::StrCat(R"({"model_type": ")", type, R"(", "architectures": [")", class_name, R"("],
        "hidden_size": 48, "intermediate_size": 112, "num_attention_heads": 4, "vocab_size": 131,
        "num_hidden_layers": 2, "max_position_embeddings": 130)",
                   more, "}"),
      "config.json");
}

absl::StatusOr<ModelConfig> ImagesParsed(const std::string& fields) {
  return ParseModelConfig(
      absl::StrCat(R"({"model_type": "vit", "architectures": ["ViTForImageClassification"],
                       "hidden_size": 64, "intermediate_size": 112, "num_attention_heads": 4,
                       "num_hidden_layers": 2)",
                   fields, "}"),
      "config.json");
}

TEST(ClassificationTest, ConfigsOfImagesAreRead) {
  const auto config = ImagesParsed(R"(, "id2label": {"0": "a", "1": "b", "2": "c"})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->task, Task::kImageClassification);
  EXPECT_EQ(config->labels, 3);
  EXPECT_EQ(config->max_positions, 14 * 14 + 1);
  EXPECT_EQ(config->patch_width(), 3 * 16 * 16);
  EXPECT_EQ(ArchitectureOf(*config), "ViTForImageClassification");
  const auto oblong = ImagesParsed(R"(, "image_size": [32, 32], "patch_size": 8)");
  ASSERT_TRUE(oblong.ok()) << oblong.status();
  EXPECT_EQ(oblong->tokens_of_image(), 17);
  for (const auto& [fields, said] : std::vector<std::pair<std::string, std::string>>{
           {R"(, "image_size": [32, 64])", "image_size"},
           {R"(, "patch_size": 15)", "a multiple of patch_size = 15"},
           {R"(, "image_size": 8192)", "image_size"},
           {R"(, "num_channels": 2)", "num_channels"},
           {R"(, "problem_type": "regression")", "problem_type"},
           {R"(, "hidden_act": "mish")", "hidden_act"}})
    EXPECT_THAT(std::string(ImagesParsed(fields).status().message()), HasSubstr(said)) << fields;
}

TEST(ClassificationTest, ConfigsOfEncodersAreRead) {
  const auto bert = ParsedEncoder("bert", "BertForSequenceClassification",
                                  R"(, "classifier_dropout": 0.3, "hidden_act": "gelu_new")");
  ASSERT_TRUE(bert.ok()) << bert.status();
  EXPECT_TRUE(bert->encoder && bert->pools && !bert->new_head);
  EXPECT_EQ(bert->activation, Activation::kGeluTanh);
  EXPECT_EQ(bert->hidden_dropout, 0.1);
  EXPECT_EQ(bert->attention_dropout, 0.1);
  EXPECT_EQ(bert->classifier_dropout, 0.3);
  EXPECT_EQ(bert->norm_epsilon, 1e-12);
  EXPECT_EQ(bert->max_positions, 130);
  const auto roberta = ParsedEncoder("roberta", "RobertaForMaskedLM");
  ASSERT_TRUE(roberta.ok()) << roberta.status();
  EXPECT_TRUE(roberta->task == Task::kMaskedLm && roberta->tied_embeddings && !roberta->pools);
  EXPECT_EQ(roberta->first_position, 2);
  EXPECT_EQ(roberta->max_positions, 128);
  EXPECT_THAT(ErrorOf({Task::kCausalLm, 0}, *roberta), HasSubstr("no head for causal_lm"));
  EXPECT_EQ(ErrorOf({Task::kSequenceClassification, 7}, *roberta), "");
  for (const char* wrong :
       {R"(, "position_embedding_type": "relative_key")", R"(, "is_decoder": true)",
        R"(, "hidden_act": "mish")", R"(, "problem_type": "ranking")"}) {
    EXPECT_FALSE(ParsedEncoder("bert", "BertForSequenceClassification", wrong).ok()) << wrong;
  }
  EXPECT_FALSE(ParsedEncoder("bert", "BertForQuestionAnswering").ok());
  const auto tagger = ParsedEncoder("roberta", "RobertaForTokenClassification",
                                    R"(, "id2label": {"0": "O", "1": "B", "2": "I"})");
  ASSERT_TRUE(tagger.ok()) << tagger.status();
  EXPECT_EQ(tagger->task, Task::kTokenClassification);
  EXPECT_EQ(tagger->labels, 3);
  EXPECT_EQ(ArchitectureOf(*tagger), "RobertaForTokenClassification");
  EXPECT_EQ(ErrorOf({Task::kTokenClassification, 5}, *roberta), "");
  EXPECT_THAT(ErrorOf({Task::kTokenClassification, 1}, *roberta),
              HasSubstr("num_labels: 1 is out"));
  EXPECT_THAT(ErrorOf({Task::kSequenceClassification, 3}, *tagger),
              HasSubstr("no head for sequence_classification; give task: token_classification"));
  EXPECT_THAT(ErrorOf({Task::kTokenClassification, 3, Problem::kRegression}, *roberta),
              HasSubstr("problem_type: is of task: sequence_classification"));
  EXPECT_THAT(ErrorOf({Task::kTokenClassification, 3}, LlamaShape(kTiny)),
              HasSubstr("task: token_classification is not offered for llama"));
}

// PEFT finds "classifier" at the end of "pre_classifier", too.
TEST(ClassificationTest, AnAdapterOfDistilBertSavesBothMatricesOfItsHead) {
  TrainingMode mode = LoraMode();
  mode.adapter.modules_to_save = {"classifier", "score"};
  const auto program = BuildProgram(EncoderShape("distilbert", {1, 16, 4, 4, 12, 11}), mode);
  ASSERT_TRUE(program.ok()) << program.status();
  std::vector<std::string> saved;
  for (const Parameter& p : program->parameters) {
    if (p.saved) saved.push_back(p.key);
  }
  EXPECT_THAT(saved, ::testing::UnorderedElementsAre("pre_classifier.weight", "pre_classifier.bias",
                                                     "classifier.weight", "classifier.bias"));
}

TEST(ClassificationTest, AnAdapterOfAnEncoderNamesItsHead) {
  TrainingMode mode = LoraMode({"query"});
  const ModelConfig config = EncoderShape("roberta", {3, 16, 4, 4, 12, 11});
  EXPECT_THAT(std::string(BuildProgram(config, mode).status().message()),
              HasSubstr("lacks classifier"));
  mode.adapter.modules_to_save = {"classifier", "score"};
  const auto program = BuildProgram(config, mode);
  ASSERT_TRUE(program.ok()) << program.status();
  std::vector<std::string> saved;
  for (const Parameter& p : program->parameters) {
    if (p.saved) saved.push_back(p.key);
  }
  EXPECT_THAT(saved, ::testing::UnorderedElementsAre(
                         "classifier.dense.weight", "classifier.dense.bias",
                         "classifier.out_proj.weight", "classifier.out_proj.bias"));
}

}  // namespace
}  // namespace snug::program
