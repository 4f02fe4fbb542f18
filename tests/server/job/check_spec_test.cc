#include "server/job/check_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/job/random_id.h"
#include "server/plan/planner.h"

namespace snug::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

v1::JobSpec GoodSpec() {
  v1::JobSpec spec;
  spec.set_model("/m");
  spec.set_dataset("/d.jsonl");
  spec.set_method(v1::JobSpec::METHOD_LORA);
  return spec;
}

std::vector<std::string> FieldsOf(const v1::JobSpec& spec) {
  std::vector<std::string> fields;
  for (const Violation& violation : CheckSpec(spec)) fields.push_back(violation.field);
  return fields;
}

TEST(CheckSpecTest, ThreeFieldsAreEnough) { EXPECT_THAT(FieldsOf(GoodSpec()), IsEmpty()); }

TEST(CheckSpecTest, EmptySpecNamesAllThatIsMissing) {
  EXPECT_THAT(FieldsOf({}), ElementsAre("spec.model", "spec.method", "spec.dataset"));
}

// Four mistakes in four corners: all are said at once.
TEST(CheckSpecTest, AllViolationsAtOnce) {
  v1::JobSpec spec = GoodSpec();
  spec.set_dataset("relative.jsonl");
  spec.mutable_lora()->set_lora_dropout(1.0);
  spec.mutable_training()->set_learning_rate(-1.0);
  spec.mutable_memory()->set_budget("12 elephants");
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.dataset", "spec.lora.lora_dropout",
                                          "spec.training.learning_rate", "spec.memory.budget"));
}

TEST(CheckSpecTest, NotANumberIsOutsideEveryRange) {
  v1::JobSpec spec = GoodSpec();
  spec.mutable_training()->set_weight_decay(std::nan(""));
  spec.set_eval_split(std::nan(""));
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.eval_split", "spec.training.weight_decay"));
}

// Codes do not learn, and an adapter is merged into what it was trained beside.
TEST(CheckSpecTest, AQuantisedBaseIsFrozenAndNotMergedInto) {
  v1::JobSpec spec = GoodSpec();
  spec.set_quantization(v1::JobSpec::QUANTIZATION_NF4);
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  spec.set_merge(true);
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.merge"));
  spec.set_merge(false);
  spec.set_method(v1::JobSpec::METHOD_FULL);
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.quantization"));
  spec.set_quantization(v1::JobSpec::QUANTIZATION_NONE);
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  spec.set_quantization(static_cast<v1::JobSpec::Quantization>(9));
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.quantization"));
}

// An adapter's readers would put it beside the plain model.
TEST(CheckSpecTest, AReversibleModelIsTrainedWhole) {
  v1::JobSpec spec = GoodSpec();
  spec.set_reversible("native");
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.reversible"));
  spec.set_method(v1::JobSpec::METHOD_FULL);
  spec.clear_lora();
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  (*spec.mutable_memory()->mutable_stash())[std::string(1, '*')] = v1::STASH_KIND_REVERSIBLE;
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  for (const char* other : {"meft1", "meft2", "meft3", "Native"}) {
    spec.set_reversible(other);
    EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.reversible")) << other;
  }
  spec.set_reversible("none");
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
}

TEST(CheckSpecTest, FullFineTuningIsWithoutLora) {
  v1::JobSpec spec = GoodSpec();
  spec.set_method(v1::JobSpec::METHOD_FULL);
  spec.mutable_lora()->set_r(8);
  spec.mutable_training()->set_precision(v1::TrainingSpec::PRECISION_BF16);
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.lora"));
}

TEST(CheckSpecTest, AddedTokensAreFewAndShortAndDifferent) {
  v1::JobSpec spec = GoodSpec();
  spec.add_added_tokens("<a>");
  spec.add_added_tokens("<b>");
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  for (const std::string& bad :
       {std::string("<a>"), std::string(), std::string(129, 'x'), std::string("a\0b", 3)}) {
    spec.set_added_tokens(1, bad);
    EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.added_tokens"));
  }
  spec.clear_added_tokens();
  for (int i = 0; i <= kMaxAddedTokens; ++i) spec.add_added_tokens(std::to_string(i));
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.added_tokens"));
}

// An update in backward knows neither the norm of all gradients nor another micro-batch's.
TEST(CheckSpecTest, ReleasedGradientsAreNeitherClippedNorAccumulated) {
  v1::JobSpec spec = GoodSpec();
  spec.mutable_memory()->set_gradients(v1::MemorySpec::GRADIENTS_RELEASED);
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.gradients"));
  spec.mutable_training()->set_max_grad_norm(1.0);
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.gradients"));
  spec.mutable_training()->set_max_grad_norm(0.0);
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  spec.mutable_training()->set_gradient_accumulation_steps(2);
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.gradients"));
  spec.mutable_training()->set_gradient_accumulation_steps(1);
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  spec.mutable_memory()->set_gradients(static_cast<v1::MemorySpec::Gradients>(9));
  spec.mutable_memory()->set_optimizer(static_cast<v1::MemorySpec::OptimizerState>(9));
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.gradients", "spec.memory.optimizer"));
}

// What gives other gradients is pinned only where the job allows it.
TEST(CheckSpecTest, ALossyStashNeedsItsFidelity) {
  v1::JobSpec spec = GoodSpec();
  auto& memory = *spec.mutable_memory();
  (*memory.mutable_stash())["*.mlp.*"] = v1::STASH_KIND_INT8;
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.stash[\"*.mlp.*\"]"));
  memory.set_fidelity(v1::FIDELITY_UNBIASED);
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.stash[\"*.mlp.*\"]"));
  memory.set_fidelity(v1::FIDELITY_APPROXIMATE);
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  memory.set_fidelity(v1::FIDELITY_EXACT);
  (*memory.mutable_stash())["*.mlp.*"] = v1::STASH_KIND_OFFLOAD;
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  (*memory.mutable_stash())["*.mlp.*"] = v1::STASH_KIND_UNSPECIFIED;
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.stash[\"*.mlp.*\"]"));
  (*memory.mutable_stash())["*.mlp.*"] = v1::STASH_KIND_CHUNK;
  v1::StashOptions& options = (*memory.mutable_stash_options())["*.mlp.*"];
  options.set_rows(1);
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  options.set_rows(0);
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.stash[\"*.mlp.*\"].rows"));
  options.set_rows(1);
  (*memory.mutable_stash())["*.mlp.*"] = v1::STASH_KIND_KEEP;
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.stash[\"*.mlp.*\"].rows"));
  memory.mutable_stash()->clear();
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.stash[\"*.mlp.*\"]"));
}

TEST(CheckSpecTest, WhatIsSetOfASampleIsCheckedByPattern) {
  v1::JobSpec spec = GoodSpec();
  auto& memory = *spec.mutable_memory();
  (*memory.mutable_stash())["*"] = v1::STASH_KIND_SAMPLED;
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.stash[\"*\"]"));
  memory.set_fidelity(v1::FIDELITY_UNBIASED);
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  v1::StashOptions& options = (*memory.mutable_stash_options())["*"];
  options.set_rho(0.25);
  options.set_estimator("wta");
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  options.set_rho(1.5);
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.stash[\"*\"]"));
  options.set_rho(0.25);
  (*memory.mutable_stash())["*"] = v1::STASH_KIND_KEEP;
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.stash[\"*\"]"));
}

TEST(CheckSpecTest, OnlyWhatIsReversibleIsRecoveredAhead) {
  v1::JobSpec spec = GoodSpec();
  auto& memory = *spec.mutable_memory();
  (*memory.mutable_stash_options())["*"].set_ahead(true);
  for (const auto kind : {v1::STASH_KIND_RECOMPUTE, v1::STASH_KIND_CHUNK}) {
    (*memory.mutable_stash())["*"] = kind;
    EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.stash[\"*\"].ahead"));
  }
  (*memory.mutable_stash())["*"] = v1::STASH_KIND_REVERSIBLE;
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  (*memory.mutable_stash_options())["*"].set_rows(8);
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.stash[\"*\"].rows"));
}

TEST(CheckSpecTest, ClassesAreTwoAtLeastAndNamedOnce) {
  v1::JobSpec spec = GoodSpec();
  spec.set_task(v1::JobSpec::TASK_SEQUENCE_CLASSIFICATION);
  spec.set_problem_type("single_label_classification");
  for (const char* name : {"a", "b"}) spec.add_label_names(name);
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  spec.set_num_labels(3);
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.label_names"));
  spec.set_num_labels(0);
  for (const std::string& bad :
       {std::string("a"), std::string(), std::string(129, 'x'), std::string("a\0b", 3)}) {
    spec.set_label_names(1, bad);
    EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.label_names"));
  }
  spec.clear_label_names();
  spec.set_num_labels(1);
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.num_labels"));
  for (const char* problem : {"", "regression", "multi_label_classification"}) {
    spec.set_problem_type(problem);
    EXPECT_THAT(FieldsOf(spec), IsEmpty());
  }
  spec.set_num_labels(2);
  spec.set_problem_type("ranking");
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.problem_type"));
  spec.set_problem_type("");
  for (const auto task :
       {v1::JobSpec::TASK_TOKEN_CLASSIFICATION, v1::JobSpec::TASK_IMAGE_CLASSIFICATION}) {
    spec.set_task(task);
    EXPECT_THAT(FieldsOf(spec), IsEmpty());
    spec.set_num_labels(1);
    EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.num_labels"));
    spec.set_num_labels(2);
  }
  for (const auto task :
       {v1::JobSpec::TASK_CAUSAL_LM, v1::JobSpec::TASK_SEQ2SEQ_LM, v1::JobSpec::TASK_MASKED_LM}) {
    spec.set_task(task);
    EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.num_labels"));
  }
}

TEST(CheckSpecTest, AShareOfTokensIsMasked) {
  v1::JobSpec spec = GoodSpec();
  spec.set_task(v1::JobSpec::TASK_MASKED_LM);
  spec.set_mlm_probability(0.15);
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  for (const double bad : {0.0, 1.0, -0.1, std::nan("")}) {
    spec.set_mlm_probability(bad);
    EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.mlm_probability"));
  }
}

// A key that would be read and not obeyed.
TEST(CheckSpecTest, WhatIsOfTasksThatAreNotOfferedIsRefused) {
  v1::JobSpec spec = GoodSpec();
  spec.set_image_augmentation("harsh");
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.image_augmentation"));
  for (const char* known : {"none", "basic", "strong"}) {
    spec.set_image_augmentation(known);
    EXPECT_THAT(FieldsOf(spec), IsEmpty());
  }
  for (const auto format :
       {v1::JobSpec::DATASET_FORMAT_TAGGED_TOKENS, v1::JobSpec::DATASET_FORMAT_IMAGES}) {
    spec.set_dataset_format(format);
    EXPECT_THAT(FieldsOf(spec), IsEmpty());
  }
}

// Stars cost nothing; patterns and their bytes do, on every site.
TEST(CheckSpecTest, StashPatternsAreLimitedInNumberAndLength) {
  v1::JobSpec spec = GoodSpec();
  auto& stash = *spec.mutable_memory()->mutable_stash();
  stash[std::string(128, '*')] = v1::STASH_KIND_RECOMPUTE;
  for (int i = 1; i < kMaxStashPatterns; ++i)
    stash[absl::StrCat("layers.", i, ".*")] = v1::STASH_KIND_KEEP;
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  stash["*"] = v1::STASH_KIND_KEEP;
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.stash"));
  stash.clear();
  stash[std::string(129, '*')] = v1::STASH_KIND_KEEP;
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.stash"));
}

TEST(CheckSpecTest, EvaluationNeedsData) {
  v1::JobSpec spec = GoodSpec();
  spec.mutable_training()->set_eval_steps(5);
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.training.eval_steps"));
  spec.set_eval_split(0.1);
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  spec.set_eval_dataset("/e.jsonl");
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.eval_split"));
}

// One asks for the last answer alone, the other for all tokens.
TEST(CheckSpecTest, MaskHistoryNeedsTheMasksThatItNarrows) {
  v1::JobSpec spec = GoodSpec();
  spec.set_mask_history(true);
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  spec.set_assistant_only_loss(true);
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  spec.set_assistant_only_loss(false);
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.mask_history"));
  spec.clear_assistant_only_loss();
  spec.set_completion_only_loss(false);
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.mask_history"));
}

TEST(CheckSpecTest, DefaultsAreThoseOfTheSchema) {
  v1::JobSpec spec = GoodSpec();
  FillDefaults(spec, 512);
  EXPECT_EQ(spec.lora().r(), 16);
  EXPECT_EQ(spec.lora().lora_alpha(), 32.0);
  EXPECT_EQ(spec.training().learning_rate(), 2e-4);
  EXPECT_EQ(spec.training().max_seq_length(), 512);
  EXPECT_EQ(spec.training().num_train_epochs(), 1.0);
  EXPECT_EQ(spec.training().seed(), 42);
  EXPECT_TRUE(spec.training().packing());
  EXPECT_EQ(spec.memory().budget(), "auto");
  EXPECT_EQ(spec.max_slowdown(), 1.5);
}

// 0 is no bound, and stays; a spec of a version without the field has the default.
TEST(CheckSpecTest, ASlowdownIsBoundedAboveTheFairShareOrNotAtAll) {
  v1::JobSpec spec = GoodSpec();
  EXPECT_EQ(MaxSlowdown(spec), 1.5);
  for (const double good : {0.0, 1.2, 1.5, 1e6}) {
    spec.set_max_slowdown(good);
    EXPECT_THAT(FieldsOf(spec), IsEmpty()) << good;
    FillDefaults(spec, 128);
    EXPECT_EQ(MaxSlowdown(spec), good);
  }
  for (const double bad : {-1.0, 0.5, 1.0, 1.199, 1e7, std::nan(""), HUGE_VAL}) {
    spec.set_max_slowdown(bad);
    EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.max_slowdown")) << bad;
  }
  spec.set_max_slowdown(1.0);
  EXPECT_EQ(CheckSpec(spec).at(0).message,
            "1 is neither 0, which is no bound, nor in [1.2, 1e+06]");
}

// 0 is never, and stays; of a job whose plans are exact nothing is filled in.
TEST(CheckSpecTest, AGradientIsMeasuredInOneStepOfTwoHundredAtMost) {
  v1::JobSpec spec = GoodSpec();
  FillDefaults(spec, 128);
  EXPECT_FALSE(spec.memory().has_drift_steps());
  EXPECT_EQ(DriftSteps(spec), 200);
  spec.mutable_memory()->set_fidelity(v1::FIDELITY_UNBIASED);
  FillDefaults(spec, 128);
  EXPECT_TRUE(spec.memory().has_drift_steps());
  for (const int64_t good : {0, 200, 5000}) {
    spec.mutable_memory()->set_drift_steps(good);
    EXPECT_THAT(FieldsOf(spec), IsEmpty()) << good;
    FillDefaults(spec, 128);
    EXPECT_EQ(DriftSteps(spec), good);
  }
  for (const int64_t bad : {-1, 1, 199, 1'000'000'001}) {
    spec.mutable_memory()->set_drift_steps(bad);
    EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.drift_steps")) << bad;
  }
  spec.mutable_memory()->set_drift_steps(199);
  EXPECT_EQ(CheckSpec(spec).at(0).message,
            "199 is neither 0, which is never, nor from 200 to 1000000000");
}

TEST(CheckSpecTest, ABoundOfTheDriftNeedsAMeasurement) {
  v1::JobSpec spec = GoodSpec();
  spec.mutable_memory()->set_fidelity(v1::FIDELITY_APPROXIMATE);
  for (const double good : {0.0, 1e-3, 2.0}) {
    spec.mutable_memory()->set_drift_bound(good);
    EXPECT_THAT(FieldsOf(spec), IsEmpty()) << good;
  }
  for (const double bad : {-0.1, std::nan(""), HUGE_VAL}) {
    spec.mutable_memory()->set_drift_bound(bad);
    EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.drift_bound")) << bad;
  }
  spec.mutable_memory()->set_drift_bound(0.1);
  spec.mutable_memory()->set_drift_steps(0);
  EXPECT_EQ(CheckSpec(spec).at(0).message, "needs a measurement; memory.drift_steps is 0");
  spec.mutable_memory()->clear_drift_steps();
  spec.mutable_training()->set_max_grad_norm(0.0);
  spec.mutable_training()->set_gradient_accumulation_steps(1);
  spec.mutable_memory()->set_gradients(v1::MemorySpec::GRADIENTS_RELEASED);
  EXPECT_THAT(FieldsOf(spec), ElementsAre("spec.memory.drift_bound"));
  spec.mutable_memory()->set_fidelity(v1::FIDELITY_EXACT);  // Nothing drifts.
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
}

// Numbers of one section of a spec, by their presence.
std::vector<const google::protobuf::FieldDescriptor*> Numbers(
    const google::protobuf::Message& section, bool optional) {
  using google::protobuf::FieldDescriptor;
  std::vector<const FieldDescriptor*> numbers;
  const google::protobuf::Descriptor& type = *section.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    const auto kind = field->cpp_type();
    const bool number = kind == FieldDescriptor::CPPTYPE_DOUBLE ||
                        kind == FieldDescriptor::CPPTYPE_INT32 ||
                        kind == FieldDescriptor::CPPTYPE_INT64;
    if (number && !field->is_repeated() && field->has_presence() == optional)
      numbers.push_back(field);
  }
  return numbers;
}

double ValueOf(const google::protobuf::Message& section,
               const google::protobuf::FieldDescriptor* field) {
  const google::protobuf::Reflection& read = *section.GetReflection();
  if (field->cpp_type() == field->CPPTYPE_DOUBLE) return read.GetDouble(section, field);
  return field->cpp_type() == field->CPPTYPE_INT32
             ? read.GetInt32(section, field)
             : static_cast<double>(read.GetInt64(section, field));
}

void SetZero(google::protobuf::Message* section, const google::protobuf::FieldDescriptor* field) {
  const google::protobuf::Reflection& write = *section->GetReflection();
  if (field->cpp_type() == field->CPPTYPE_DOUBLE) return write.SetDouble(section, field, 0.0);
  if (field->cpp_type() == field->CPPTYPE_INT32) return write.SetInt32(section, field, 0);
  write.SetInt64(section, field, 0);
}

v1::JobSpec Answering() {
  v1::JobSpec spec = GoodSpec();
  spec.set_eval_split(0.5);
  spec.mutable_training()->add_sample_prompts("a");
  return spec;
}

google::protobuf::Message* SectionOf(v1::JobSpec& spec, bool lora) {
  if (lora) return spec.mutable_lora();
  return spec.mutable_training();
}

// A number that cannot be told from one that is not given has 0 as its default.
TEST(CheckSpecTest, WhatHasAnotherDefaultThanZeroIsOptional) {
  for (bool lora : {false, true}) {
    v1::JobSpec spec = Answering();
    FillDefaults(spec, 128);
    const google::protobuf::Message& section = *SectionOf(spec, lora);
    for (const auto* field : Numbers(section, /*optional=*/false))
      EXPECT_EQ(ValueOf(section, field), 0.0) << field->full_name();
  }
}

// A 0 that is given is what it says, or refused under the field's name: never the default.
TEST(CheckSpecTest, AZeroIsNeverAnotherNumber) {
  std::vector<std::string> refused, kept;
  for (bool lora : {false, true}) {
    v1::JobSpec first = Answering();
    for (const auto* field : Numbers(*SectionOf(first, lora), /*optional=*/true)) {
      v1::JobSpec spec = first;
      SetZero(SectionOf(spec, lora), field);
      const std::vector<std::string> found = FieldsOf(spec);
      if (!found.empty()) {
        EXPECT_THAT(
            found, ElementsAre(absl::StrCat("spec.", lora ? "lora." : "training.", field->name())));
        refused.push_back(field->name());
        continue;
      }
      FillDefaults(spec, 128);
      EXPECT_EQ(ValueOf(*SectionOf(spec, lora), field), 0.0) << field->full_name();
      kept.push_back(field->name());
    }
  }
  EXPECT_THAT(refused, UnorderedElementsAre("num_train_epochs", "per_device_train_batch_size",
                                            "gradient_accumulation_steps", "max_seq_length",
                                            "save_total_limit", "logging_steps", "adam_epsilon",
                                            "sample_max_new_tokens", "sample_top_p",
                                            "generation_max_length", "r", "lora_alpha"));
  EXPECT_THAT(kept, UnorderedElementsAre("learning_rate", "max_grad_norm", "seed", "adam_beta1",
                                         "adam_beta2", "lora_dropout"));
}

TEST(CheckSpecTest, WhatWasGivenStays) {
  v1::JobSpec spec = GoodSpec();
  spec.set_method(v1::JobSpec::METHOD_FULL);
  spec.mutable_training()->set_max_grad_norm(0.0);
  spec.mutable_training()->set_packing(false);
  spec.mutable_training()->set_seed(0);
  FillDefaults(spec, 4096);
  EXPECT_EQ(spec.training().max_grad_norm(), 0.0);
  EXPECT_FALSE(spec.training().packing());
  EXPECT_EQ(spec.training().seed(), 0);
  EXPECT_EQ(spec.training().learning_rate(), 1e-5);
  EXPECT_EQ(spec.training().max_seq_length(), 2048);
  EXPECT_FALSE(spec.has_lora());
}

TEST(RandomIdTest, IdsOfJobsFollowTheirRule) {
  EXPECT_TRUE(IsJobId("a"));
  EXPECT_TRUE(IsJobId("answers-lora-3f9a1c"));
  for (const char* bad : {"", "A", "1a", "a-", "a_b", "-a", "a.b"}) EXPECT_FALSE(IsJobId(bad));
  EXPECT_FALSE(IsJobId(std::string(64, 'a')));
}

TEST(RandomIdTest, NewIdsComeFromTheName) {
  for (const char* name : {"Answers LoRA!", "", "42", "---", "näme", "steps=3"}) {
    EXPECT_TRUE(IsJobId(NewJobId(name))) << NewJobId(name);
  }
  EXPECT_THAT(NewJobId("Answers LoRA!"), testing::StartsWith("answers-lora-"));
  EXPECT_TRUE(IsJobId(NewJobId(std::string(300, 'x'))));
  EXPECT_TRUE(IsUuid(RandomUuid()));
  EXPECT_FALSE(IsUuid("not-a-uuid"));
}

}  // namespace
}  // namespace snug::server
