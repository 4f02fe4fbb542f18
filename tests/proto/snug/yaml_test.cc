#include "proto/snug/yaml.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/snug/yaml_node.h"
#include "snug/v1/config.pb.h"
#include "snug/v1/job.pb.h"

namespace snug {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

v1::JobSpec Parsed(absl::string_view text) {
  v1::JobSpec spec;
  const absl::Status status = ParseYaml(text, "job.yaml", &spec);
  EXPECT_TRUE(status.ok()) << status;
  return spec;
}

std::string ErrorOf(absl::string_view text) {
  v1::JobSpec spec;
  const absl::Status status = ParseYaml(text, "job.yaml", &spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

v1::JobSpec Overridden(std::initializer_list<const char*> assignments, v1::JobSpec spec = {}) {
  for (const char* assignment : assignments) {
    const absl::Status status = ApplyOverride(assignment, &spec);
    EXPECT_TRUE(status.ok()) << status;
  }
  return spec;
}

std::string OverrideError(absl::string_view assignment) {
  v1::JobSpec spec;
  const absl::Status status = ApplyOverride(assignment, &spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << assignment;
  return std::string(status.message());
}

TEST(ParseYamlTest, EnumsGoByNameInAnyCase) {
  EXPECT_EQ(Parsed("method: lora").method(), v1::JobSpec::METHOD_LORA);
  EXPECT_EQ(Parsed("method: FULL").method(), v1::JobSpec::METHOD_FULL);
  EXPECT_EQ(
      Parsed("training: {lr_scheduler_type: constant_with_warmup}").training().lr_scheduler_type(),
      v1::TrainingSpec::LR_SCHEDULER_TYPE_CONSTANT_WITH_WARMUP);
}

TEST(ParseYamlTest, NumbersMayHaveExponents) {
  EXPECT_EQ(Parsed("training: {learning_rate: 1e-3}").training().learning_rate(), 1e-3);
  EXPECT_EQ(Parsed("training: {learning_rate: 2.0e-4}").training().learning_rate(), 2e-4);
  EXPECT_EQ(Parsed("training: {max_steps: 1e3}").training().max_steps(), 1000);
  EXPECT_EQ(Parsed("training: {seed: -9223372036854775808}").training().seed(),
            std::numeric_limits<int64_t>::min());
}

TEST(ParseYamlTest, ScalarStandsForAListOfOne) {
  EXPECT_THAT(Parsed("lora: {target_modules: all-linear}").lora().target_modules(),
              ElementsAre("all-linear"));
  EXPECT_THAT(Parsed("lora:\n  target_modules:\n  - q_proj\n  - v_proj").lora().target_modules(),
              ElementsAre("q_proj", "v_proj"));
}

TEST(ParseYamlTest, MapsTakeTheirKeysAsWritten) {
  const v1::JobSpec spec = Parsed("memory: {stash: {\"layers.*.mlp.*\": recompute, \"*\": keep}}");
  const auto& stash = spec.memory().stash();
  EXPECT_EQ(stash.size(), 2u);
  EXPECT_EQ(stash.at("layers.*.mlp.*"), v1::STASH_KIND_RECOMPUTE);
  EXPECT_EQ(stash.at("*"), v1::STASH_KIND_KEEP);
}

TEST(ParseYamlTest, NullAndEmptyMeanNotGiven) {
  EXPECT_EQ(Parsed("").ByteSizeLong(), 0u);
  EXPECT_EQ(Parsed("# nothing but a comment\n").ByteSizeLong(), 0u);
  const v1::JobSpec spec = Parsed("model: ~\ntraining:\nlora: {target_modules: }\n");
  EXPECT_EQ(spec.model(), "");
  EXPECT_FALSE(spec.has_training());
  EXPECT_EQ(spec.lora().target_modules_size(), 0);
}

// 0 is a value of its own: no clipping.
TEST(ParseYamlTest, ZeroIsGiven) {
  EXPECT_TRUE(Parsed("training: {max_grad_norm: 0}").training().has_max_grad_norm());
  EXPECT_FALSE(Parsed("training: {seed: 1}").training().has_max_grad_norm());
}

TEST(ParseYamlTest, ListsOfMessages) {
  v1::DaemonConfig config;
  ASSERT_TRUE(ParseYaml("devices:\n- {name: cpu:0, capacity: 4GiB}\n- {name: cpu:1, threads: 2}\n",
                        "snugd.yaml", &config)
                  .ok());
  ASSERT_EQ(config.devices_size(), 2);
  EXPECT_EQ(config.devices(0).name(), "cpu:0");
  EXPECT_EQ(config.devices(0).capacity(), "4GiB");
  EXPECT_EQ(config.devices(1).threads(), 2);
}

TEST(ParseYamlTest, UnknownKeyNamesFileLineKeyAndTheNearest) {
  EXPECT_EQ(ErrorOf("model: m\ntraining:\n  packng: true\n"),
            "job.yaml:3: unknown key \"packng\" in training; did you mean packing?");
  EXPECT_EQ(ErrorOf("model: m\nseq_len: 512\n"),
            "job.yaml:2: unknown key \"seq_len\"; did you mean training.max_seq_length?");
}

TEST(ParseYamlTest, ReportsEverythingThatIsWrong) {
  EXPECT_EQ(ErrorOf("modle: m\nmethod: lorra\npriority: high\n"),
            "job.yaml:1: unknown key \"modle\"; did you mean model?\n"
            "job.yaml:2: method must be lora | full, not \"lorra\"; did you mean lora?\n"
            "job.yaml:3: priority must be a whole number from -2147483648 to 2147483647, not "
            "\"high\"");
}

// Of a file of another kind altogether ten errors are enough, in the order of their lines.
TEST(ParseYamlTest, TenErrorsAreShownAndTheOthersCounted) {
  std::string text = "training: {packing: 1}\n";  // Found last, as its section is read last.
  for (int i = 0; i < 14; ++i) absl::StrAppend(&text, "zz", i, "qq: 1\n");
  const std::vector<std::string> lines = absl::StrSplit(ErrorOf(text), '\n');
  ASSERT_EQ(lines.size(), 11u);
  for (int i = 0; i < 10; ++i)
    EXPECT_THAT(lines[i], StartsWith(absl::StrCat("job.yaml:", i + 1, ": ")));
  EXPECT_EQ(lines[10], "job.yaml: 5 more errors");
  v1::JobSpec spec;
  const std::vector<YamlError> errors = YamlErrors(ParseYaml(text, "job.yaml", &spec));
  ASSERT_EQ(errors.size(), 15u);
  EXPECT_EQ(errors[0].field, "training.packing");
  EXPECT_EQ(errors[0].line, 1);
  EXPECT_EQ(errors[14].line, 15);
  EXPECT_THAT(errors[14].message, StartsWith("unknown key \"zz13qq\""));
}

// What a quoted text spells does not separate what is said of it.
TEST(ParseYamlTest, ErrorsAreReadBackWhateverTheFileHolds) {
  v1::JobSpec spec;
  const absl::Status status =
      ParseYaml("priority: \"\\x1e\\x1f\"\n\"\\x1e\": 1\n", "job.yaml", &spec);
  const std::vector<YamlError> errors = YamlErrors(status);
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].field, "priority");
  EXPECT_THAT(errors[0].message, HasSubstr("must be a whole number"));
  EXPECT_EQ(errors[1].line, 2);
}

// The JSON of a job's own spec, as the client prints it, is a job file.
TEST(ParseYamlTest, JsonWithNamesOfWhatIsNotGivenIsRead) {
  const v1::JobSpec spec = Parsed(
      R"({"model": "/m", "method": "LORA", "dataset_format": "DATASET_FORMAT_UNSPECIFIED",
          "eval_split": 0.0, "added_tokens": [], "columns": {},
          "training": {"max_steps": "20", "packing": true, "precision": "FP32",
                       "eval_strategy": "STRATEGY_UNSPECIFIED"}})");
  EXPECT_EQ(spec.training().max_steps(), 20);
  EXPECT_EQ(spec.training().eval_strategy(), v1::TrainingSpec::STRATEGY_UNSPECIFIED);
}

// As Python's json and `jq -a` write it.
TEST(ParseYamlTest, JsonMaySpellACharacterInTwoEscapes) {
  EXPECT_EQ(Parsed(R"({"display_name": "a \ud83D\ude00\uD83d\uDE00 b"})").display_name(),
            "a \U0001F600\U0001F600 b");
  EXPECT_EQ(Parsed(R"({"display_name": "\\ud83d\\ude00"})").display_name(), R"(\ud83d\ude00)");
  EXPECT_EQ(Parsed(R"(display_name: \ud83d\ude00)").display_name(), R"(\ud83d\ude00)");
  for (const char* half : {R"({"display_name": "\ud83d"})", R"({"display_name": "\ud83d\u0041"})",
                           R"({"display_name": "\ude00\ud83d"})", R"({"display_name": "\ud83d\)"})
    EXPECT_THAT(ErrorOf(half), HasSubstr("not valid YAML")) << half;
}

TEST(ParseYamlTest, WrongTypesNameFieldValueAndWhatIsExpected) {
  const auto line = [](const char* text) { return ErrorOf(text).substr(strlen("job.yaml:1: ")); };
  EXPECT_EQ(line("training: {packing: 1}"), "training.packing must be true or false, not \"1\"");
  EXPECT_EQ(line("training: {learning_rate: .nan}"),
            "training.learning_rate must be a finite number, not \".nan\"");
  EXPECT_EQ(line("training: {weight_decay: inf}"),
            "training.weight_decay must be a finite number, not \"inf\"");
  EXPECT_EQ(line("training: {max_steps: 1.5}"),
            "training.max_steps must be a whole number, not \"1.5\"");
  EXPECT_EQ(line("training: {max_seq_length: 3000000000}"),
            "training.max_seq_length must be a whole number from -2147483648 to 2147483647, not "
            "\"3000000000\"");
  EXPECT_EQ(line("training: {max_steps: 9223372036854775808}"),
            "training.max_steps must be a whole number, not \"9223372036854775808\"");
  EXPECT_EQ(line("training: 5"), "training must be a mapping of keys to values, not \"5\"");
  EXPECT_EQ(line("model: [a]"), "model must be text, not a list");
  EXPECT_EQ(line("lora: {target_modules: [[a]]}"),
            "lora.target_modules[0] must be text, not a list");
  EXPECT_EQ(line("memory: {stash: keep}"),
            "memory.stash must be a mapping of keys to values, not \"keep\"");
  EXPECT_EQ(line("memory: {stash: {\"*\": kept}}"),
            "memory.stash[\"*\"] must be keep | recompute | offload | int8 | int4 | two_bit | "
            "chunk | sampled | reversible, not \"kept\"; did you mean keep?");
  EXPECT_EQ(line("- a"), "the file must be a mapping of keys to values, not a list");
}

// Names that others script against.
TEST(ParseYamlTest, WhereGradientsAndMomentsLie) {
  const v1::JobSpec spec = Parsed("memory: {gradients: released, optimizer: host}");
  EXPECT_EQ(spec.memory().gradients(), v1::MemorySpec::GRADIENTS_RELEASED);
  EXPECT_EQ(spec.memory().optimizer(), v1::MemorySpec::OPTIMIZER_STATE_HOST);
  EXPECT_EQ(Parsed("memory: {gradients: kept}").memory().gradients(),
            v1::MemorySpec::GRADIENTS_KEPT);
  EXPECT_EQ(Parsed("memory: {optimizer: device}").memory().optimizer(),
            v1::MemorySpec::OPTIMIZER_STATE_DEVICE);
}

// What a kind takes stands beside it, and goes with it.
TEST(ParseYamlTest, AKindMayTakeOptions) {
  v1::JobSpec spec;
  ASSERT_TRUE(
      ParseYaml("memory: {stash: {a: {kind: chunk, rows: 7}, b: {kind: int8}}}", "f", &spec).ok());
  EXPECT_EQ(spec.memory().stash().at("a"), v1::STASH_KIND_CHUNK);
  EXPECT_EQ(spec.memory().stash_options().at("a").rows(), 7);
  EXPECT_EQ(spec.memory().stash().at("b"), v1::STASH_KIND_INT8);
  EXPECT_EQ(spec.memory().stash_options().count("b"), 0);
  ASSERT_TRUE(ApplyOverride("memory.stash.a=recompute", &spec).ok());
  EXPECT_EQ(spec.memory().stash_options().count("a"), 0);
  EXPECT_THAT(ErrorOf("memory: {stash: {a: {rows: 7}}}"),
              HasSubstr("memory.stash[\"a\"] needs a kind"));
  EXPECT_THAT(ErrorOf("memory: {stash: {a: {kind: chunk, row: 7}}}"),
              HasSubstr("unknown key \"row\" in memory.stash[\"a\"]"));
}

// "Not given" has no spelling of its own.
TEST(ParseYamlTest, UnspecifiedIsNoValue) {
  EXPECT_THAT(ErrorOf("method: method_unspecified"), HasSubstr("must be lora | full"));
}

TEST(ParseYamlTest, AKeyThatIsThereTwiceIsAnError) {
  EXPECT_EQ(ErrorOf("model: a\ndataset: d\nmodel: b\n"),
            "job.yaml:3: \"model\" is there twice; first in line 1");
  EXPECT_EQ(ErrorOf("training: {seed: 1,\n  seed: 2}"),
            "job.yaml:2: \"training.seed\" is there twice; first in line 1");
  EXPECT_EQ(ErrorOf("memory: {stash: {a: keep,\n a: keep}}"),
            "job.yaml:2: \"a\" is there twice in memory.stash");
}

TEST(ParseYamlTest, BrokenYamlNamesTheLine) {
  EXPECT_THAT(ErrorOf("model: a\nlora: {r: 1\n"), StartsWith("job.yaml:3: not valid YAML: "));
  EXPECT_THAT(ErrorOf("model: a\n---\nmodel: b\n"),
              StartsWith("job.yaml:2: what begins here is not part of the one document"));
  EXPECT_THAT(ErrorOf("? [a]\n: b\n"), HasSubstr("a key must be a word"));
}

// yaml-cpp makes documents of a stray comma for ever.
TEST(ParseYamlTest, AStrayCommaIsAnErrorAndEnds) {
  EXPECT_THAT(ErrorOf(","), StartsWith("job.yaml:1: what begins here"));
  EXPECT_THAT(ErrorOf("- x\n, y"), StartsWith("job.yaml:2: what begins here"));
  EXPECT_THAT(OverrideError("lora.target_modules=,"), HasSubstr("what begins here"));
}

// A few lines of aliases of aliases would be a tree of 10^9 nodes.
TEST(ParseYamlTest, AliasBombsAndDeepNestingAreRefused) {
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int k = 1; k < 10; ++k) bomb += "," + before;
    bomb += "]\n";
  }
  EXPECT_THAT(ErrorOf(bomb), HasSubstr("more than 100000 values"));
  EXPECT_THAT(ErrorOf("a: " + std::string(100, '[') + std::string(100, ']')),
              HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(ErrorOf(std::string(200000, '[')), StartsWith("job.yaml:"));
  EXPECT_THAT(ErrorOf(std::string((1 << 20) + 1, ' ')), HasSubstr("at most 1048576"));
}

TEST(LineOfFieldTest, InWhateverSpelling) {
  const char* text =
      "model: m\n"
      "learning_rate: 1e-3\n"
      "training:\n"
      "  max_steps: 5\n"
      "datasets:\n"
      "- path: a\n"
      "- weight: 1\n"
      "  path: b\n";
  const auto line = [&](const char* field) {
    return LineOfField(text, field, *v1::JobSpec::descriptor());
  };
  EXPECT_EQ(line("model"), 1);
  EXPECT_EQ(line("training.max_steps"), 4);
  EXPECT_EQ(line("training.learning_rate"), 2);  // At the top level, where it belongs elsewhere.
  EXPECT_EQ(line("datasets[1].path"), 8);
  EXPECT_EQ(line("datasets[0].weight"), 6);  // Not given: its dataset is.
  EXPECT_EQ(line("lora.r"), 0);
}

TEST(ApplyOverrideTest, ReplacesWhatTheFileSaid) {
  v1::JobSpec spec = Parsed("training: {max_steps: 20, seed: 7}\nlora: {target_modules: [k_proj]}");
  spec = Overridden({"training.max_steps=5", "lora.target_modules=[q_proj,v_proj]", "method=full"},
                    spec);
  EXPECT_EQ(spec.training().max_steps(), 5);
  EXPECT_EQ(spec.training().seed(), 7);
  EXPECT_THAT(spec.lora().target_modules(), ElementsAre("q_proj", "v_proj"));
  EXPECT_EQ(spec.method(), v1::JobSpec::METHOD_FULL);
  EXPECT_THAT(Overridden({"lora.target_modules=q_proj"}, spec).lora().target_modules(),
              ElementsAre("q_proj"));
}

TEST(ApplyOverrideTest, MapsAsAWholeOrByKey) {
  v1::JobSpec spec = Overridden({"memory.stash={\"*\": recompute, \"layers.0.*\": keep}"});
  spec = Overridden({"memory.stash.layers.*.mlp.*=recompute", "memory.stash.layers.0.*=recompute"},
                    spec);
  EXPECT_EQ(spec.memory().stash().size(), 3u);
  EXPECT_EQ(spec.memory().stash().at("layers.*.mlp.*"), v1::STASH_KIND_RECOMPUTE);
  EXPECT_EQ(spec.memory().stash().at("layers.0.*"), v1::STASH_KIND_RECOMPUTE);
  spec = Overridden({"memory.stash.layers.0.*="}, spec);
  EXPECT_EQ(spec.memory().stash().count("layers.0.*"), 0u);
  EXPECT_EQ(Overridden({"memory.stash={}"}, spec).memory().stash().size(), 0u);
}

TEST(ApplyOverrideTest, TextIsTakenAsItStands) {
  EXPECT_EQ(Overridden({"display_name=a: b #1=2"}).display_name(), "a: b #1=2");
  EXPECT_EQ(Overridden({"model=./x"}).model(), "./x");
  EXPECT_EQ(Overridden({"memory.budget=12GiB"}).memory().budget(), "12GiB");
}

TEST(ApplyOverrideTest, EmptyMeansNotGiven) {
  const v1::JobSpec spec = Parsed("model: m\ntraining: {max_grad_norm: 0}");
  EXPECT_EQ(Overridden({"model="}, spec).model(), "");
  EXPECT_FALSE(Overridden({"training.max_grad_norm="}, spec).training().has_max_grad_norm());
}

TEST(ApplyOverrideTest, ErrorsNameTheOverride) {
  EXPECT_EQ(OverrideError("training.max_step=5"),
            "override \"training.max_step=5\": unknown key \"max_step\" in training; did you mean "
            "max_steps?");
  EXPECT_EQ(OverrideError("alpha=5"),
            "override \"alpha=5\": unknown key \"alpha\"; did you mean lora.lora_alpha?");
  EXPECT_EQ(OverrideError("training.max_steps=many"),
            "override \"training.max_steps=many\": training.max_steps must be a whole number, not "
            "\"many\"");
  EXPECT_THAT(OverrideError("model.path=x"), HasSubstr("model has no parts"));
  EXPECT_THAT(OverrideError("devices.0=x"), HasSubstr("unknown key \"devices\""));
  EXPECT_THAT(OverrideError("max_steps"), HasSubstr("write key=value"));
  EXPECT_THAT(OverrideError("=5"), HasSubstr("write key=value"));
  EXPECT_THAT(OverrideError("lora.target_modules=[a"), HasSubstr("not valid YAML"));
  EXPECT_THAT(OverrideError("training.="), HasSubstr("unknown key \"\" in training"));
}

}  // namespace
}  // namespace snug
