// The reader in its own process: it says what CheckJob says, and what becomes of the daemon's call
// when it fails.
#include "server/inspect/inspector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "google/protobuf/util/message_differencer.h"
#include "server/inspect/facts.h"
#include "server/job/errors.h"
#include "tests/server/job/no_origins.h"
#include "tests/server/testing/test_folder.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class InspectorTest : public testing::Test {
 protected:
  InspectorTest() {
    WriteTinyModel(dir_ + "/model");
    WriteTinyDataset(dir_ + "/train.jsonl", 4, 8);
    spec_.set_model(dir_ + "/model");
    spec_.set_dataset(dir_ + "/train.jsonl");
    spec_.set_method(v1::JobSpec::METHOD_LORA);
  }

  static std::string Program() {
    return std::string(std::getenv("SNUG_BIN_DIR")) + "/snug-inspect";
  }
  // One that does this instead; $R is the real one.
  std::string Script(const std::string& shell) {
    WriteText(dir_ + "/reader", "#!/bin/sh\nR=" + Program() + "\n" + shell + "\n");
    fs::permissions(dir_ + "/reader", fs::perms::owner_all);
    return dir_ + "/reader";
  }
  absl::StatusOr<CheckedJob> Check() {
    return inspector_.Check(spec_, NoOrigins(), {.who = daemon_});
  }
  // What the same reading says in this process.
  absl::StatusOr<CheckedJob> Here() {
    const absl::StatusOr<ModelOrigin> model = ModelOriginOf(spec_, NoOrigins());
    if (!model.ok()) return CheckJob(spec_, model.status());
    return CheckJob(spec_, model->dir);
  }

  const TestFolder folder_{"inspector"};
  const std::string dir_ = folder_.path();
  const Principal daemon_ = DaemonPrincipal();
  v1::JobSpec spec_;
  Inspector inspector_{{.program = Program()}};
};

TEST_F(InspectorTest, SaysWhatReadingHereSays) {
  const absl::StatusOr<CheckedJob> job = Check(), here = Here();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(job->spec, here->spec));
  EXPECT_TRUE(job->program->config == here->program->config);
  EXPECT_EQ(job->program->parameters.size(), here->program->parameters.size());
  EXPECT_EQ(job->model_dir, dir_ + "/model");
}

// The worker is told of what was opened here, whether it was read anew or not.
TEST_F(InspectorTest, SaysWhatItHasOpened) {
  for (const char* when : {"read", "remembered"}) {
    const absl::StatusOr<CheckedJob> job = Check();
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_THAT(job->opened->folders(),
                testing::ElementsAre(dir_ + "/model", dir_ + "/model/additional_chat_templates"));
    const std::string weights = dir_ + "/model/model.safetensors";
    struct stat about = {};
    ASSERT_EQ(stat(weights.c_str(), &about), 0);
    int found = 0;
    for (const v1::OpenedFiles::File& file : job->opened->files()) {
      if (file.path() != weights) continue;
      ++found;
      EXPECT_EQ(file.inode(), about.st_ino) << when;
      EXPECT_EQ(file.device(), about.st_dev) << when;
      EXPECT_EQ(file.bytes(), about.st_size) << when;
    }
    EXPECT_EQ(found, 1) << when;
  }
}

// Whose base a job shares goes by what was opened for its owner: a link that he lays in the
// folder's place meanwhile, and that the daemon alone may follow, leads to nobody else's.
TEST_F(InspectorTest, WeightsAreSharedByWhatWasOpened) {
  const std::string model = dir_ + "/model", other = dir_ + "/other", swapped = dir_ + "/swapped";
  fs::copy(model, other);
  spec_.set_model(other);
  const std::string digest_of_other = Check()->weights_digest;
  spec_.set_model(model);
  const std::string digest = Check()->weights_digest;
  ASSERT_FALSE(digest.empty());
  ASSERT_NE(digest, digest_of_other);
  spec_.set_model(model + "/");
  EXPECT_EQ(Check()->weights_digest, digest);
  spec_.set_model(model);
  Inspector inspector({.program = Script("mv " + model + " " + swapped + "; ln -s " + other + " " +
                                         model + "; exec $R")});
  const absl::StatusOr<CheckedJob> job = inspector.Check(spec_, NoOrigins(), {.who = daemon_});
  ASSERT_TRUE(fs::is_symlink(model));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->weights_digest, digest);
}

// Every kind of trouble with a file is said alike wherever it is read.
TEST_F(InspectorTest, RefusesWhatReadingHereRefuses) {
  const std::string config = dir_ + "/model/config.json";
  const std::string weights = dir_ + "/model/model.safetensors";
  const std::string good = ReadText(config);
  const auto expect_same = [&](const char* what) {
    const absl::Status said = Check().status();
    EXPECT_TRUE(absl::IsInvalidArgument(said)) << what << ": " << said;
    EXPECT_EQ(said, Here().status()) << what;
  };
  fs::remove(config);
  expect_same("no config.json");
  ASSERT_EQ(mkfifo(config.c_str(), 0600), 0);
  expect_same("a FIFO");
  fs::remove(config);
  fs::create_directory(config);
  expect_same("a folder");
  fs::remove(config);
  fs::create_symlink(dir_ + "/nothing", config);
  expect_same("a link to nothing");
  fs::remove(config);
  WriteText(config, std::string(1 << 20, '['));
  expect_same("nested deeply");
  WriteText(config, good);
  WriteText(weights, "PK\x03\x04 and more");
  expect_same("a zip archive");
  fs::remove(weights);
  WriteText(dir_ + "/model/pytorch_model.bin", "x");
  expect_same("weights of another kind");
  fs::create_symlink(dir_ + "/nothing", dir_ + "/model/tokenizer.model");
  expect_same("a carried file that is a link to nothing");
  spec_.mutable_lora()->set_init_adapter(dir_ + "/adapter");
  expect_same("no adapter");
  spec_.set_model(dir_ + "/elsewhere");
  expect_same("no model");
  spec_.set_model("some-job");
  expect_same("no such job");
}

TEST_F(InspectorTest, NamesDatasetsAndModelTogether) {
  fs::remove(dir_ + "/train.jsonl");
  fs::remove(dir_ + "/model/config.json");
  const absl::Status refused = Check().status();
  EXPECT_EQ(ReasonOf(refused), "BAD_DATASET");
  const auto fields = FieldsOf(refused);
  ASSERT_EQ(fields.size(), 2u);
  EXPECT_EQ(fields[0].first, "spec.dataset");
  EXPECT_EQ(fields[1].first, "spec.model");
  fs::remove_all(dir_ + "/model");
  WriteTinyModel(dir_ + "/model");
  EXPECT_EQ(FieldsOf(Check().status()).size(), 1u);
}

// The file of 200 MB that ended the daemon.
TEST_F(InspectorTest, ATokenizerOfBracketsIsRefused) {
  spec_.add_added_tokens("<x>");
  spec_.mutable_lora()->add_modules_to_save("embed_tokens");
  WriteText(dir_ + "/model/tokenizer.json", std::string(200 << 20, '['));
  const absl::Status refused = Check().status();
  EXPECT_EQ(ReasonOf(refused), "BAD_ADDED_TOKENS");
  EXPECT_THAT(refused.message(), HasSubstr("nested deeper than 32 levels"));
}

TEST_F(InspectorTest, AReaderThatFailsCostsItsAnswerAlone) {
  for (const char* shell : {"kill -SEGV $$", "kill -KILL $$", "exit 1", "exit 0",
                            "echo nonsense >&3", "head -c 100000000 /dev/zero >&3"}) {
    Inspector inspector({.program = Script(shell)});
    const absl::Status said = inspector.Check(spec_, NoOrigins(), {.who = daemon_}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(said)) << shell << ": " << said;
    EXPECT_EQ(ReasonOf(said), "INSPECT_FAILED") << shell;
  }
}

TEST_F(InspectorTest, AReaderThatHangsIsEnded) {
  const absl::Time start = absl::Now();
  Inspector inspector({.program = Script("sleep 1000"), .timeout = absl::Milliseconds(300)});
  EXPECT_EQ(ReasonOf(inspector.Check(spec_, NoOrigins(), {.who = daemon_}).status()),
            "INSPECT_FAILED");
  Inspector silent({.program = Script("exec 3>&-; sleep 1000")});
  EXPECT_EQ(ReasonOf(silent.Check(spec_, NoOrigins(), {.who = daemon_}).status()),
            "INSPECT_FAILED");
  const std::atomic<bool> cancelled{true};
  Inspector other({.program = Script("sleep 1000")});
  EXPECT_TRUE(absl::IsCancelled(
      other.Check(spec_, NoOrigins(), {.who = daemon_, .cancelled = &cancelled}).status()));
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
}

TEST_F(InspectorTest, AReaderThatCannotBeStartedIsAShortage) {
  Inspector inspector({.program = dir_ + "/nobody"});
  EXPECT_TRUE(absl::IsUnavailable(inspector.Check(spec_, NoOrigins(), {.who = daemon_}).status()));
}

// Jobs of one model cost one process, until one of its files is another.
TEST_F(InspectorTest, AnswersAreRememberedByTheFiles) {
  Inspector inspector({.program = Script("echo run >> " + dir_ + "/runs; exec $R")});
  const auto runs = [&] { return ReadText(dir_ + "/runs").size() / 4; };
  for (const char* name : {"one", "two"}) {
    spec_.set_display_name(name);
    spec_.set_priority(7);
    (*spec_.mutable_labels())["name"] = name;
    spec_.mutable_training()->set_seed(name[0]);
    spec_.mutable_training()->set_learning_rate(1e-4 * name[0]);
    const absl::StatusOr<CheckedJob> job = inspector.Check(spec_, NoOrigins(), {.who = daemon_});
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->spec.display_name(), name);
    EXPECT_EQ(job->spec.priority(), 7);
    EXPECT_EQ(job->spec.labels().at("name"), name);
    EXPECT_EQ(job->spec.training().seed(), name[0]);
    EXPECT_EQ(job->spec.training().learning_rate(), 1e-4 * name[0]);
  }
  EXPECT_EQ(runs(), 1u);
  spec_.mutable_training()->clear_seed();  // The default is another answer.
  EXPECT_EQ(inspector.Check(spec_, NoOrigins(), {.who = daemon_})->spec.training().seed(), 42);
  EXPECT_EQ(runs(), 2u);
  spec_.mutable_lora()->set_r(4);
  ASSERT_TRUE(inspector.Check(spec_, NoOrigins(), {.who = daemon_}).ok());
  EXPECT_EQ(runs(), 3u);
  // Another time alone, another inode alone, another size.
  const fs::path config = dir_ + "/model/config.json", copy = dir_ + "/copy.json";
  const fs::file_time_type time = fs::last_write_time(config);
  fs::last_write_time(config, time + std::chrono::nanoseconds(1'000));
  ASSERT_TRUE(inspector.Check(spec_, NoOrigins(), {.who = daemon_}).ok());
  EXPECT_EQ(runs(), 4u);
  fs::copy_file(config, copy);
  fs::last_write_time(copy, time + std::chrono::nanoseconds(1'000));
  fs::rename(copy, config);
  ASSERT_TRUE(inspector.Check(spec_, NoOrigins(), {.who = daemon_}).ok());
  EXPECT_EQ(runs(), 5u);
  WriteText(config, ReadText(config) + "\n");
  ASSERT_TRUE(inspector.Check(spec_, NoOrigins(), {.who = daemon_}).ok());
  EXPECT_EQ(runs(), 6u);
}

// Those who ask at once as well: one process answers, and each gets his own name back.
TEST_F(InspectorTest, JobsOfOneModelThatAreCheckedAtOnceCostOneProcess) {
  Inspector inspector({.program = Script("echo run >> " + dir_ + "/runs; sleep 0.3; exec $R")});
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&, i, spec = spec_]() mutable {
      spec.set_display_name(std::to_string(i));
      const absl::StatusOr<CheckedJob> job = inspector.Check(spec, NoOrigins(), {.who = daemon_});
      ASSERT_TRUE(job.ok()) << job.status();
      EXPECT_EQ(job->spec.display_name(), std::to_string(i));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ReadText(dir_ + "/runs"), "run\n");
}

// Whoever waits for another's answer may be cancelled, and asks himself where there is none.
TEST_F(InspectorTest, WhoWaitsForAnAnswerDoesNotDependOnIt) {
  Inspector inspector({.program = Script("test -e " + dir_ + "/runs && exec $R; echo run > " +
                                         dir_ + "/runs; sleep 1; exit 1")});
  std::thread first(
      [&] { EXPECT_FALSE(inspector.Check(spec_, NoOrigins(), {.who = daemon_}).ok()); });
  while (!fs::exists(dir_ + "/runs")) absl::SleepFor(absl::Milliseconds(5));
  const std::atomic<bool> cancelled{true};
  EXPECT_TRUE(absl::IsCancelled(
      inspector.Check(spec_, NoOrigins(), {.who = daemon_, .cancelled = &cancelled}).status()));
  EXPECT_TRUE(inspector.Check(spec_, NoOrigins(), {.who = daemon_}).ok());
  first.join();
}

// An error of no code would be none, and nothing else.
TEST_F(InspectorTest, AnErrorIsAnErrorWhateverItsCode) {
  for (const int code : {0, -1, 17, 1000}) {
    v1::InspectError error;
    error.set_code(code);
    EXPECT_TRUE(absl::IsInternal(StatusOf(error))) << code;
  }
  EXPECT_EQ(StatusOf(ErrorOf(JobNotFound("x"))), JobNotFound("x"));
}

TEST_F(InspectorTest, AHeadOfClassesIsToldAsItIs) {
  program::ModelConfig config = Here()->program->config;
  ASSERT_TRUE(
      program::ChooseTask(
          {program::Task::kSequenceClassification, 5, program::Problem::kMultiLabel}, config)
          .ok());
  config.pad_token = 3;
  config.head_spread = 0.5;
  config.quantization = program::Quantization::kNf4;
  config.in_floats = {"lm_head", "model.layers.1.mlp"};
  config.outer_codes = {"score"};
  ASSERT_TRUE(ConfigOf(FactsOf(config)).ok());
  EXPECT_EQ(*ConfigOf(FactsOf(config)), config);
}

TEST_F(InspectorTest, AnEncoderDecoderIsToldAsItIs) {
  program::ModelConfig config = Here()->program->config;
  config.model_type = "t5";
  config.task = program::Task::kSeq2SeqLm;
  config.layers = 5;
  config.decoder_layers = 2;
  config.distances = {.buckets = 8, .farthest = 20};
  config.gated_mlp = false;
  config.head_scale = 0.125;
  config.start_token = 3;
  ASSERT_TRUE(ConfigOf(FactsOf(config)).ok()) << ConfigOf(FactsOf(config)).status();
  EXPECT_EQ(*ConfigOf(FactsOf(config)), config);
  const auto refused = [&](auto change) {
    v1::ModelFacts changed = FactsOf(config);
    change(changed);
    return !ConfigOf(changed).ok();
  };
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_decoder_layers(5); }));  // No encoder's left.
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_farthest_distance(1 << 30); }));
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_distance_buckets(0); }));
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_start_token(f.vocabulary()); }));
}

TEST_F(InspectorTest, AModelInStagesIsToldAsItIs) {
  const auto config = program::ParseModelConfig(
      R"({"model_type": "swin", "architectures": ["SwinForImageClassification"],
          "drop_path_rate": 0.25})",
      "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  const v1::ModelFacts facts = FactsOf(*config);
  ASSERT_TRUE(ConfigOf(facts).ok()) << ConfigOf(facts).status();
  EXPECT_EQ(*ConfigOf(facts), *config);
  const auto refused = [&](auto change) {
    v1::ModelFacts changed = facts;
    change(changed);
    return !ConfigOf(changed).ok();
  };
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.add_stage_heads(24); }));
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_stage_layers(0, 0); }));
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_window_side(5); }));
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_drop_path(NAN); }));
}

TEST_F(InspectorTest, AModelOfImagesIsToldAsItIs) {
  const auto config = program::ParseModelConfig(
      R"({"model_type": "deit", "architectures": ["DeiTForImageClassification"],
          "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 4, "image_size": 32, "patch_size": 8, "num_channels": 1})",
      "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  const v1::ModelFacts facts = FactsOf(*config);
  ASSERT_TRUE(ConfigOf(facts).ok());
  EXPECT_EQ(*ConfigOf(facts), *config);
  const auto refused = [&](auto change) {
    v1::ModelFacts changed = facts;
    change(changed);
    return !ConfigOf(changed).ok();
  };
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_patch_size(0); }));
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_patch_size(7); }));
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_image_size(0); }));
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_image_channels(-3); }));
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_distilled(false); }));  // A token fewer.
}

TEST_F(InspectorTest, FactsOutsideTheLimitsAreNotBelieved) {
  const v1::ModelFacts facts = FactsOf(Here()->program->config);
  ASSERT_TRUE(ConfigOf(facts).ok());
  const auto refused = [&](auto change) {
    v1::ModelFacts changed = facts;
    change(changed);
    return !ConfigOf(changed).ok();
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_layers(1'000'000); }));
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_width(-1); }));
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_kv_heads(0); }));
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_model_type("mamba"); }));
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_rope_theta(kInfinity); }));
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_activation(9); }));
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_task(2); }));
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.set_task(1); }));  // Of no classes.
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.mutable_rope()->set_kind(-1); }));
  EXPECT_TRUE(refused([](v1::ModelFacts& f) { f.add_sliding(true); }));
}

}  // namespace
}  // namespace snug::server
