#include "server/job/check_training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "server/job/check_spec.h"

namespace snug::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A good spec with this training section, and an evaluation set.
v1::JobSpec SpecWith(const std::string& training) {
  v1::JobSpec spec;
  spec.set_model("/m");
  spec.set_dataset("/d.jsonl");
  spec.set_eval_dataset("/e.jsonl");
  spec.set_method(v1::JobSpec::METHOD_LORA);
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(training, spec.mutable_training()));
  return spec;
}

std::vector<std::string> FieldsOf(const std::string& training) {
  std::vector<std::string> fields;
  for (const Violation& violation : CheckSpec(SpecWith(training)))
    fields.push_back(violation.field.substr(std::string("spec.training.").size()));
  return fields;
}

std::string MessageOf(const std::string& training) {
  const std::vector<Violation> found = CheckSpec(SpecWith(training));
  return found.empty() ? "" : found.front().message;
}

TEST(CheckTrainingTest, OneAdamWUnderSeveralNames) {
  for (const char* name :
       {"adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw", "adamw_8bit", "adamw_bnb_8bit"})
    EXPECT_THAT(FieldsOf("optim: '" + std::string(name) + "'"), IsEmpty()) << name;
  for (const char* name : {"paged_adamw_32bit", "adafactor", "sgd", "lion_32bit", "lion_8bit",
                           "ademamix", "galore_adamw"}) {
    EXPECT_THAT(MessageOf("optim: '" + std::string(name) + "'"),
                testing::AllOf(HasSubstr(name), HasSubstr("adamw_torch")));
  }
  EXPECT_THAT(MessageOf("optim: 'paged_adamw_8bit'"),
              testing::AllOf(HasSubstr("promised"), HasSubstr(": adamw_8bit")));
}

// As transformers spells them; what a job does not write is refused with what does.
TEST(CheckTrainingTest, MetricsAreWrittenForTensorBoardOrForNothing) {
  EXPECT_THAT(FieldsOf(""), IsEmpty());
  EXPECT_THAT(FieldsOf("report_to: 'none'"), IsEmpty());
  EXPECT_THAT(FieldsOf("report_to: 'tensorboard'"), IsEmpty());
  EXPECT_THAT(FieldsOf("report_to: ['tensorboard', 'wandb']"), ElementsAre("report_to"));
  EXPECT_THAT(FieldsOf("report_to: ['none', 'tensorboard']"), ElementsAre("report_to"));
  EXPECT_THAT(MessageOf("report_to: 'wandb'"),
              HasSubstr("not \"wandb\": snug export-metrics JOB --to wandb DIR"));
  EXPECT_THAT(MessageOf("report_to: 'mlflow'"), HasSubstr("--to mlflow"));
  EXPECT_THAT(MessageOf("report_to: 'all'"), HasSubstr("tensorboard or none, not \"all\""));
}

TEST(CheckTrainingTest, EachScheduleTakesItsOwn) {
  EXPECT_THAT(FieldsOf("lr_scheduler_type: LR_SCHEDULER_TYPE_POLYNOMIAL lr_scheduler_kwargs { "
                       "power: 2 lr_end: 0 }"),
              IsEmpty());
  EXPECT_THAT(
      FieldsOf("lr_scheduler_type: LR_SCHEDULER_TYPE_LINEAR lr_scheduler_kwargs { power: 2 }"),
      ElementsAre("lr_scheduler_kwargs.power"));
  EXPECT_THAT(MessageOf("lr_scheduler_kwargs { min_lr: 1e-5 }"),
              HasSubstr("cosine takes num_cycles"));
  EXPECT_THAT(FieldsOf("lr_scheduler_type: LR_SCHEDULER_TYPE_COSINE_WITH_MIN_LR"),
              ElementsAre("lr_scheduler_kwargs.min_lr"));
  EXPECT_THAT(FieldsOf("lr_scheduler_type: LR_SCHEDULER_TYPE_COSINE_WITH_MIN_LR "
                       "lr_scheduler_kwargs { min_lr: 1e-5 min_lr_rate: 0.1 }"),
              ElementsAre("lr_scheduler_kwargs.min_lr"));
  EXPECT_THAT(FieldsOf("lr_scheduler_type: LR_SCHEDULER_TYPE_WSD"),
              ElementsAre("lr_scheduler_kwargs.num_decay_steps"));
  EXPECT_THAT(FieldsOf("lr_scheduler_type: LR_SCHEDULER_TYPE_WSD lr_scheduler_kwargs "
                       "{ num_decay_steps: 3 decay_type: 'sqrt' }"),
              ElementsAre("lr_scheduler_kwargs.decay_type"));
  EXPECT_THAT(FieldsOf("lr_scheduler_type: LR_SCHEDULER_TYPE_POLYNOMIAL learning_rate: 1e-8"),
              ElementsAre("lr_scheduler_kwargs.lr_end"));
  EXPECT_THAT(
      MessageOf(
          "lr_scheduler_type: LR_SCHEDULER_TYPE_POLYNOMIAL lr_scheduler_kwargs { lr_end: 1e-3 }"),
      HasSubstr("must be below learning_rate, which is 0.0002"));
}

TEST(CheckTrainingTest, StrategiesAgreeWithTheirSteps) {
  EXPECT_THAT(FieldsOf("eval_strategy: STRATEGY_EPOCH save_strategy: STRATEGY_BEST"), IsEmpty());
  EXPECT_THAT(FieldsOf("eval_strategy: STRATEGY_STEPS"), ElementsAre("eval_strategy"));
  EXPECT_THAT(FieldsOf("eval_strategy: STRATEGY_NO eval_steps: 5"), ElementsAre("eval_steps"));
  EXPECT_THAT(FieldsOf("save_strategy: STRATEGY_EPOCH save_steps: 5"), ElementsAre("save_steps"));
  EXPECT_THAT(FieldsOf("eval_strategy: STRATEGY_BEST"), ElementsAre("eval_strategy"));
}

TEST(CheckTrainingTest, TheBestNeedsEvaluationsOnTheWay) {
  EXPECT_THAT(FieldsOf("eval_steps: 5 load_best_model_at_end: true early_stopping_patience: 2 "
                       "metric_for_best_model: 'eval_loss'"),
              IsEmpty());
  EXPECT_THAT(FieldsOf("load_best_model_at_end: true early_stopping_patience: 2"),
              ElementsAre("load_best_model_at_end", "early_stopping_patience"));
  EXPECT_THAT(FieldsOf("save_strategy: STRATEGY_BEST"), ElementsAre("save_strategy"));
  EXPECT_THAT(FieldsOf("metric_for_best_model: 'eval_bleu'"), ElementsAre("metric_for_best_model"));
  for (const char* name :
       {"f1", "eval_f1", "eval_matthews_correlation", "pearson", "eval_accuracy"})
    EXPECT_THAT(FieldsOf(absl::StrCat("metric_for_best_model: '", name, "'")), IsEmpty());
  EXPECT_THAT(FieldsOf("early_stopping_threshold: 0.1"), ElementsAre("early_stopping_threshold"));
}

TEST(CheckTrainingTest, DropoutIsTheModelsOrNone) {
  for (const char* good : {"model", "0", "0.0"})
    EXPECT_THAT(FieldsOf(absl::StrCat("dropout: '", good, "'")), IsEmpty());
  for (const char* bad : {"0.1", "none", "-1"})
    EXPECT_THAT(FieldsOf(absl::StrCat("dropout: '", bad, "'")), ElementsAre("dropout"));
}

TEST(CheckTrainingTest, SmoothedLabelsKeepAShare) {
  for (const char* good : {"0", "0.1", "0.99"})
    EXPECT_THAT(FieldsOf(absl::StrCat("label_smoothing_factor: ", good)), IsEmpty());
  for (const char* bad : {"1", "-0.1", "nan"})
    EXPECT_THAT(FieldsOf(absl::StrCat("label_smoothing_factor: ", bad)),
                ElementsAre("label_smoothing_factor"));
}

TEST(CheckTrainingTest, SamplesHaveBounds) {
  EXPECT_THAT(FieldsOf("sample_prompts: 'a' sample_top_p: 0.9 sample_temperature: 1"), IsEmpty());
  EXPECT_THAT(FieldsOf("sample_prompts: ''"), ElementsAre("sample_prompts"));
  EXPECT_THAT(FieldsOf("sample_max_new_tokens: 5000 sample_top_p: 1.5"),
              ElementsAre("sample_max_new_tokens", "sample_top_p"));
}

TEST(CheckTrainingTest, GeneratedAnswersHaveBoundsAndNeedRows) {
  EXPECT_THAT(FieldsOf("predict_with_generate: true"), IsEmpty());
  v1::JobSpec spec = SpecWith("predict_with_generate: true");
  spec.clear_eval_dataset();
  const std::vector<Violation> found = CheckSpec(spec);
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].field, "spec.training.predict_with_generate");
  EXPECT_THAT(found[0].message, HasSubstr("give eval_dataset or eval_split"));
  EXPECT_THAT(FieldsOf("generation_max_length: 4096"), IsEmpty());
  for (const char* bad : {"0", "-1", "5000"})
    EXPECT_THAT(FieldsOf(absl::StrCat("generation_max_length: ", bad)),
                ElementsAre("generation_max_length"));
}

TEST(CheckTrainingTest, OfLossesTheSmallerIsBetter) {
  for (const auto& [name, greater] : std::map<std::string, bool>{{"eval_loss", false},
                                                                 {"mse", false},
                                                                 {"eval_mse", false},
                                                                 {"f1_macro", true},
                                                                 {"eval_spearman", true}}) {
    v1::JobSpec spec = SpecWith(absl::StrCat("metric_for_best_model: '", name, "'"));
    FillDefaults(spec, 512);
    EXPECT_EQ(spec.training().greater_is_better(), greater) << name;
  }
}

TEST(CheckTrainingTest, StrategiesFollowTheStepsWhereTheyAreNotGiven) {
  v1::JobSpec spec = SpecWith("eval_steps: 5 metric_for_best_model: 'eval_mean_token_accuracy'");
  FillDefaults(spec, 512);
  EXPECT_EQ(spec.training().eval_strategy(), v1::TrainingSpec::STRATEGY_STEPS);
  EXPECT_EQ(spec.training().save_strategy(), v1::TrainingSpec::STRATEGY_NO);
  EXPECT_TRUE(spec.training().greater_is_better());
  EXPECT_EQ(spec.training().optim(), "adamw_torch");
}

}  // namespace
}  // namespace snug::server
