#include "proto/snug/other_names.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/snug/yaml.h"
#include "snug/v1/config.pb.h"
#include "snug/v1/job.pb.h"

namespace snug {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::JobSpec Parsed(absl::string_view text) {
  v1::JobSpec spec;
  const absl::Status status = ParseYaml(text, "job.yaml", &spec);
  EXPECT_TRUE(status.ok()) << status;
  return spec;
}

std::string ErrorOf(absl::string_view text) {
  v1::JobSpec spec;
  return std::string(ParseYaml(text, "job.yaml", &spec).message());
}

v1::JobSpec Overridden(const char* assignment) {
  v1::JobSpec spec;
  const absl::Status status = ApplyOverride(assignment, &spec);
  EXPECT_TRUE(status.ok()) << status;
  return spec;
}

// The settings of an axolotl or LLaMA-Factory file, all at the top level.
TEST(OtherNamesTest, AFileOfAnotherToolIsRead) {
  const v1::JobSpec spec = Parsed(
      "model_name_or_path: m\nfinetuning_type: lora\ncutoff_len: 512\nmicro_batch_size: 2\n"
      "gradient_accumulation_steps: 4\nnum_epochs: 3\nlr: 1e-4\nlora_rank: 8\nlora_alpha: 16\n"
      "lora_target: all\nbf16: true\nsample_packing: false\noptimizer: adamw_torch\n"
      "lr_scheduler: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr_rate: 0.1}\n"
      "evaluation_strategy: epoch\nload_in_4bit: false\nreport_to: none\n");
  EXPECT_EQ(spec.model(), "m");
  EXPECT_EQ(spec.method(), v1::JobSpec::METHOD_LORA);
  EXPECT_EQ(spec.training().max_seq_length(), 512);
  EXPECT_EQ(spec.training().per_device_train_batch_size(), 2);
  EXPECT_EQ(spec.training().gradient_accumulation_steps(), 4);
  EXPECT_EQ(spec.training().num_train_epochs(), 3.0);
  EXPECT_EQ(spec.training().learning_rate(), 1e-4);
  EXPECT_EQ(spec.lora().r(), 8);
  EXPECT_EQ(spec.lora().lora_alpha(), 16.0);
  EXPECT_THAT(spec.lora().target_modules(), ElementsAre("all-linear"));
  EXPECT_EQ(spec.training().precision(), v1::TrainingSpec::PRECISION_BF16);
  EXPECT_FALSE(spec.training().packing());
  EXPECT_TRUE(spec.training().has_packing());
  EXPECT_EQ(spec.training().optim(), "adamw_torch");
  EXPECT_EQ(spec.training().lr_scheduler_type(),
            v1::TrainingSpec::LR_SCHEDULER_TYPE_COSINE_WITH_MIN_LR);
  EXPECT_EQ(spec.training().lr_scheduler_kwargs().min_lr_rate(), 0.1);
  EXPECT_EQ(spec.training().eval_strategy(), v1::TrainingSpec::STRATEGY_EPOCH);
}

TEST(OtherNamesTest, NewTokensAreAddedTokens) {
  EXPECT_THAT(Parsed("tokens: [<a>, <b>]\nresize_vocab: true").added_tokens(),
              ElementsAre("<a>", "<b>"));
  EXPECT_THAT(ErrorOf("add_tokens: <a>,<b>"), HasSubstr("give added_tokens, a list"));
  EXPECT_THAT(ErrorOf("resize_vocab: false"), HasSubstr("the embedding grows with added_tokens"));
  EXPECT_THAT(ErrorOf("special_tokens: {pad_token: <p>}"), HasSubstr("added_tokens"));
}

TEST(OtherNamesTest, NamesStandInTheirSectionToo) {
  EXPECT_EQ(Parsed("training: {max_length: 7}").training().max_seq_length(), 7);
  EXPECT_EQ(Parsed("lora: {lora_r: 7}").lora().r(), 7);
  EXPECT_EQ(Parsed("training:\nlr: 0.5\n").training().learning_rate(), 0.5);
  EXPECT_EQ(Parsed("training: {bf16: True}").training().precision(),
            v1::TrainingSpec::PRECISION_BF16);
  EXPECT_EQ(Parsed("training: {lr_scheduler_type: wsd}").training().lr_scheduler_type(),
            Parsed("lr_scheduler_type: warmup_stable_decay").training().lr_scheduler_type());
  EXPECT_THAT(ErrorOf("training: {lora_rank: 7}"), HasSubstr("did you mean lora.r?"));
  EXPECT_THAT(ErrorOf("lora: {bf16: true}"), HasSubstr("\"bf16\""));
}

TEST(OtherNamesTest, OneSettingUnderTwoNamesIsAnErrorThatNamesBoth) {
  EXPECT_EQ(ErrorOf("lr: 1e-4\ntraining: {learning_rate: 2e-4}\n"),
            "job.yaml:1: \"lr\" and \"training.learning_rate\" in line 2 are both "
            "training.learning_rate; give one of them");
  EXPECT_EQ(ErrorOf("cutoff_len: 5\nmax_length: 5\n"),
            "job.yaml:2: \"max_length\" and \"cutoff_len\" in line 1 are both "
            "training.max_seq_length; give one of them");
  EXPECT_EQ(ErrorOf("bf16: false\ntraining: {precision: bf16}\n"),
            "job.yaml:1: \"bf16\" and \"training.precision\" in line 2 are both "
            "training.precision; give one of them");
  EXPECT_EQ(ErrorOf("lr: 1\nlr: 2\n"), "job.yaml:2: \"lr\" is there twice; first in line 1");
}

// As the files of transformers, LLaMA-Factory and axolotl ask for a base in 4 or 8 bits.
TEST(OtherNamesTest, AQuantisedBaseHasManyNames) {
  for (const char* file :
       {"load_in_4bit: true", "quantization_bit: 4", "method: qlora", "adapter: qlora",
        "adapter: qlora\nload_in_4bit: true\nbnb_4bit_quant_type: nf4",
        "quantization_bit: 4\ndouble_quantization: true"})
    EXPECT_EQ(Parsed(file).quantization(), v1::JobSpec::QUANTIZATION_NF4) << file;
  EXPECT_EQ(Parsed("adapter: qlora").method(), v1::JobSpec::METHOD_LORA);
  EXPECT_EQ(Parsed("method: qlora\nquantization: int8").quantization(),
            v1::JobSpec::QUANTIZATION_INT8);
  for (const char* file : {"load_in_8bit: true", "quantization_bit: 8", "quantization: int8"})
    EXPECT_EQ(Parsed(file).quantization(), v1::JobSpec::QUANTIZATION_INT8) << file;
  EXPECT_EQ(Parsed("quantization: none").quantization(), v1::JobSpec::QUANTIZATION_NONE);
}

TEST(OtherNamesTest, SizesMayBeLeftToTheDaemon) {
  EXPECT_EQ(Parsed("per_device_train_batch_size: auto").training().per_device_train_batch_size(),
            -1);
  EXPECT_EQ(Parsed("auto_find_batch_size: true").training().per_device_train_batch_size(), -1);
  EXPECT_EQ(Parsed("training: {max_seq_length: auto}").training().max_seq_length(), -1);
}

TEST(OtherNamesTest, WhatHasNoPlaceIsRefusedByNameWithWhatToDo) {
  EXPECT_THAT(ErrorOf("gradient_checkpointing: true"),
              HasSubstr("job.yaml:1: \"gradient_checkpointing\": what is kept"));
  EXPECT_THAT(ErrorOf("training: {gradient_checkpointing: true}"), HasSubstr("memory.budget"));
  EXPECT_THAT(ErrorOf("load_in_4bit: perhaps"), HasSubstr("quantization: none, int8 or nf4"));
  EXPECT_THAT(ErrorOf("bnb_4bit_quant_type: fp4"), HasSubstr("double quantisation"));
  EXPECT_THAT(ErrorOf("quantization_bit: 3"), HasSubstr("4 or 8"));
  EXPECT_THAT(ErrorOf("wandb_project: x"), HasSubstr("metrics.jsonl"));
  EXPECT_THAT(ErrorOf("fp16: true"), HasSubstr("precision: bf16"));
}

// Values of our own settings that mean what is not offered.
TEST(OtherNamesTest, MethodsThatThereAreNotAreRefusedByName) {
  for (const char* method : {"method: dpo", "method: ppo", "rl: dpo"})
    EXPECT_THAT(ErrorOf(method), HasSubstr("by preferences or rewards is not offered"));
}

// Lines of other tools' stock files that ask for nothing: switched off, or about how they run.
TEST(OtherNamesTest, WhatAsksForNothingMayStand) {
  EXPECT_EQ(Parsed("wandb_project: null\ndeepspeed:\nfp16: false\nload_in_8bit: false\n"
                   "flash_attention: true\noverwrite_output_dir: true\nreport_to: none\n"
                   "lora: {use_dora: false}\ntraining: {dataloader_num_workers: 4}\n"
                   "push_to_hub: false\nstage: sft\n")
                .ShortDebugString(),
            "lora { } training { }");
  EXPECT_THAT(ErrorOf("deepspeed: ds.json"), HasSubstr("one device"));
  EXPECT_THAT(ErrorOf("push_to_hub: true"), HasSubstr("hf upload"));
}

// As the files of transformers 5 and PEFT have them, written out with their defaults.
TEST(OtherNamesTest, WhatIsSoAnywayMayBeSaid) {
  EXPECT_EQ(Parsed("bias: none\ngradient_checkpointing: false\nreport_to: [none]\n"
                   "init_lora_weights: true\ndeepspeed: null\nfan_in_fan_out: false\n")
                .ByteSizeLong(),
            0u);
  EXPECT_EQ(Parsed("max_steps: -1\nnum_train_epochs: 2").training().max_steps(), 0);
  EXPECT_EQ(Parsed("training: {max_steps: -1}").training().max_steps(), 0);
  EXPECT_EQ(Parsed("training: {max_steps: 7}").training().max_steps(), 7);
  EXPECT_THAT(ErrorOf("bias: all"), HasSubstr("\"bias\": no biases"));
  EXPECT_EQ(Parsed("report_to: tensorboard").training().report_to(0), "tensorboard");
  EXPECT_EQ(Parsed("report_to: [tensorboard, wandb]").training().report_to_size(), 2);
  EXPECT_EQ(Parsed("training: {report_to: tensorboard}").training().report_to_size(), 1);
  EXPECT_THAT(ErrorOf("lora: {init_lora_weights: gaussian}"), HasSubstr("B is zero"));
  EXPECT_EQ(Parsed("task_type: CAUSAL_LM").task(), v1::JobSpec::TASK_CAUSAL_LM);
  EXPECT_EQ(Parsed("task_type: SEQ_CLS").task(), v1::JobSpec::TASK_SEQUENCE_CLASSIFICATION);
  EXPECT_EQ(Parsed("task_type: TOKEN_CLS").task(), v1::JobSpec::TASK_TOKEN_CLASSIFICATION);
  EXPECT_EQ(Parsed("task_type: SEQ_2_SEQ_LM").task(), v1::JobSpec::TASK_SEQ2SEQ_LM);
  EXPECT_THAT(ErrorOf("task_type: QUESTION_ANS"), HasSubstr("token_classification"));
  EXPECT_THAT(ErrorOf("fan_in_fan_out: true"), HasSubstr("(out, in)"));
}

// Which the daemon then refuses where it is no value.
TEST(OtherNamesTest, AZeroIsGiven) {
  EXPECT_TRUE(Parsed("training: {sample_top_p: 0.0}").training().has_sample_top_p());
  EXPECT_TRUE(Parsed("save_total_limit: 0").training().has_save_total_limit());
  EXPECT_TRUE(Parsed("lora_rank: -0").lora().has_r());
  EXPECT_FALSE(Parsed("lora_rank: 8").lora().has_lora_alpha());
  v1::JobSpec spec;
  EXPECT_TRUE(ApplyOverride("lora_alpha=0", &spec).ok());
  EXPECT_TRUE(spec.lora().has_lora_alpha());
}

// transformers 5 has no warmup_ratio: below 1 its warmup_steps are the share of all steps.
TEST(OtherNamesTest, AShareOfWarmupStepsIsTheRatio) {
  for (const char* text : {"warmup_steps: 0.1", "training: {warmup_steps: 0.1}"}) {
    EXPECT_EQ(Parsed(text).training().warmup_ratio(), 0.1) << text;
    EXPECT_EQ(Parsed(text).training().warmup_steps(), 0) << text;
  }
  EXPECT_EQ(Parsed("warmup_steps: 10").training().warmup_steps(), 10);
  EXPECT_EQ(Parsed("warmup_steps: 0").training().warmup_ratio(), 0.0);
  EXPECT_THAT(ErrorOf("warmup_steps: 0.1\nwarmup_ratio: 0.2"), HasSubstr("are both"));
  EXPECT_THAT(ErrorOf("warmup_steps: 1.5"), HasSubstr("a whole number"));
  for (const char* assignment : {"warmup_steps=0.1", "training.warmup_steps=0.1"}) {
    v1::JobSpec spec = Parsed("warmup_steps: 10");
    ASSERT_TRUE(ApplyOverride(assignment, &spec).ok());
    EXPECT_EQ(spec.training().warmup_ratio(), 0.1) << assignment;
    EXPECT_EQ(spec.training().warmup_steps(), 0) << assignment;
  }
}

// By transformers' own name, and not passed over as how other tools compute is.
TEST(OtherNamesTest, Tf32IsHeeded) {
  EXPECT_TRUE(Parsed("tf32: true").training().tf32());
  EXPECT_FALSE(Parsed("tf32: false").training().tf32());
}

TEST(OtherNamesTest, TheSamplerMayGroupByLength) {
  EXPECT_TRUE(Parsed("train_sampling_strategy: group_by_length").training().group_by_length());
  EXPECT_FALSE(Parsed("train_sampling_strategy: random").training().group_by_length());
  EXPECT_THAT(ErrorOf("train_sampling_strategy: sequential"), HasSubstr("random or group_by"));
}

TEST(OtherNamesTest, NamesBetweenCommasAreAList) {
  EXPECT_THAT(Parsed("lora_target: q_proj, v_proj").lora().target_modules(),
              ElementsAre("q_proj", "v_proj"));
  EXPECT_THAT(Parsed("lora_target: [q_proj, v_proj]\nadditional_target: embed_tokens,lm_head")
                  .lora()
                  .modules_to_save(),
              ElementsAre("embed_tokens", "lm_head"));
  for (const char* assignment : {"lora_target=q_proj,v_proj", "lora_target=[q_proj,v_proj]"})
    EXPECT_THAT(Overridden(assignment).lora().target_modules(), ElementsAre("q_proj", "v_proj"));
  // Ours is text: one regular expression.
  EXPECT_THAT(Parsed("target_modules: .*[1,2].q_proj").lora().target_modules(),
              ElementsAre(".*[1,2].q_proj"));
}

TEST(OtherNamesTest, OverridesMayUseThem) {
  EXPECT_EQ(Overridden("max_steps=-1").training().max_steps(), 0);
  EXPECT_EQ(Overridden("lr=1e-3").training().learning_rate(), 1e-3);
  EXPECT_EQ(Overridden("learning_rate=1e-3").training().learning_rate(), 1e-3);
  EXPECT_EQ(Overridden("training.cutoff_len=64").training().max_seq_length(), 64);
  EXPECT_EQ(Overridden("bf16=true").training().precision(), v1::TrainingSpec::PRECISION_BF16);
  EXPECT_EQ(Overridden("load_in_8bit=false").ByteSizeLong(), 0u);
  v1::JobSpec spec;
  EXPECT_THAT(ApplyOverride("load_in_8bit=often", &spec).message(), HasSubstr("none, int8 or nf4"));
}

// The daemon's configuration has none of these settings.
TEST(OtherNamesTest, OnlyJobFilesHaveThem) {
  v1::DaemonConfig config;
  const absl::Status status = ParseYaml("memory: 1GiB\nlr: 1\n", "snugd.yaml", &config);
  EXPECT_THAT(status.message(), HasSubstr("unknown key \"memory\""));
  EXPECT_THAT(status.message(), HasSubstr("unknown key \"lr\""));
}

// Every row of the tables names a field that exists.
TEST(OtherNamesTest, EveryNameLeadsToAField) {
  const auto& job = *v1::JobSpec::descriptor();
  const std::vector<std::string> paths = FieldPaths(job);
  for (const char* key : {"cutoff_len", "lr", "lora_rank", "max_new_tokens", "optimizer",
                          "early_stopping_min_delta", "val_set_size", "max_memory"}) {
    const OurName ours = OurNameOf("", key, nullptr, job);
    EXPECT_THAT(paths, ::testing::Contains(ours.path)) << key;
  }
}

}  // namespace
}  // namespace snug
