#include "client/job_file.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace snug::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

absl::StatusOr<v1::JobSpec> ReadJob(const std::string& file,
                                    const std::vector<std::string>& overrides) {
  const absl::StatusOr<std::string> text = ReadJobFile(file);
  return text.ok() ? ParseJobFile(*text, file, overrides) : text.status();
}

class JobFileTest : public ::testing::Test {
 protected:
  JobFileTest() {
    char name[] = "/tmp/snug-test-XXXXXX";
    folder_ = mkdtemp(name);
    fs::create_directories(folder_ / "jobs");
    fs::create_directories(folder_ / "base");
  }
  ~JobFileTest() override { fs::remove_all(folder_); }

  v1::JobSpec Read(const std::string& text, const std::vector<std::string>& overrides = {}) {
    std::ofstream(folder_ / "jobs/my-job.yaml") << text;
    auto spec = ReadJob((folder_ / "jobs/my-job.yaml").string(), overrides);
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec.value_or(v1::JobSpec());
  }

  std::string At(const std::string& path) const { return (folder_ / path).string(); }

  fs::path folder_;
};

TEST_F(JobFileTest, PathsAreRelativeToTheFile) {
  const v1::JobSpec spec = Read(
      "model: ../base/\ndataset: ./train.jsonl\neval_dataset: data/../eval.jsonl\n"
      "lora: {init_adapter: /abs/adapter}\n");
  EXPECT_EQ(spec.model(), At("base"));
  EXPECT_EQ(spec.dataset(), At("jobs/train.jsonl"));
  EXPECT_EQ(spec.eval_dataset(), At("jobs/eval.jsonl"));
  EXPECT_EQ(spec.lora().init_adapter(), "/abs/adapter");
}

// `model: base-1` may be the id of a job; a folder of that name beside the file comes first.
TEST_F(JobFileTest, ANameThatIsNoPathMayBeAnId) {
  EXPECT_EQ(Read("model: base-1").model(), "base-1");
  fs::create_directories(folder_ / "jobs/base-1");
  EXPECT_EQ(Read("model: base-1").model(), At("jobs/base-1"));
  EXPECT_EQ(Read("model: ./base-2").model(), At("jobs/base-2"));
  EXPECT_EQ(Read("model: m\ndataset: train").dataset(), At("jobs/train"));  // Is always a file.
  for (const char* no_id : {"Base-1", "base_1", "1base", "base-", "base.1"}) {
    EXPECT_EQ(Read(std::string("model: ") + no_id).model(), At(std::string("jobs/") + no_id));
  }
  const std::string longest(63, 'a');
  EXPECT_EQ(Read("model: " + longest).model(), longest);
  EXPECT_EQ(Read("model: " + longest + "a").model(), At("jobs/" + longest + "a"));
}

TEST_F(JobFileTest, WhatJobsMadeIsNamedByThem) {
  for (const char* made : {"base-1/checkpoints/12", "tenants/t/jobs/base-1/checkpoints/12"}) {
    const std::string named = made;
    EXPECT_EQ(Read("model: " + named).model(), named);
    EXPECT_EQ(Read("model: m\nlora: {init_adapter: " + named + "}").lora().init_adapter(), named);
  }
  EXPECT_EQ(Read("model: m\nlora: {init_adapter: base-1}").lora().init_adapter(), "base-1");
  for (const char* path : {"base-1/checkpoints/x", "./base-1", "Base/checkpoints/1"})
    EXPECT_EQ(
        Read(absl::StrCat("model: m\nlora: {init_adapter: ", path, "}")).lora().init_adapter(),
        At(absl::StrCat("jobs/", absl::StripPrefix(path, "./"))));
}

TEST_F(JobFileTest, WhatIsNotGivenStaysEmpty) {
  const v1::JobSpec spec = Read("model: /m\nlora: {r: 4}\n");
  EXPECT_EQ(spec.dataset(), "");
  EXPECT_EQ(spec.lora().init_adapter(), "");
  EXPECT_FALSE(Read("model: /m").has_lora());
}

TEST_F(JobFileTest, SamplePromptsAreAListOrTheLinesOfAFile) {
  std::ofstream(folder_ / "jobs/prompts.txt") << "One?\r\n\nTwo: three\n";
  const auto prompts = [&](const std::string& text) {
    const v1::JobSpec spec = Read(text);
    return std::vector<std::string>(spec.training().sample_prompts().begin(),
                                    spec.training().sample_prompts().end());
  };
  EXPECT_THAT(prompts("sample_prompts: prompts.txt"), ElementsAre("One?", "Two: three"));
  EXPECT_THAT(prompts("sample_prompts: [prompts.txt, b]"), ElementsAre("prompts.txt", "b"));
  EXPECT_THAT(prompts("sample_prompts: Who are you?"), ElementsAre("Who are you?"));
}

TEST_F(JobFileTest, TheFileNamesAJobWithoutAName) {
  EXPECT_EQ(Read("model: /m").display_name(), "my-job");
  EXPECT_EQ(Read("model: /m\ndisplay_name: other").display_name(), "other");
}

TEST_F(JobFileTest, OverridesComeBeforePathsAreResolved) {
  const v1::JobSpec spec =
      Read("model: /m\ntraining: {max_steps: 9}", {"training.max_steps=5", "model=../base"});
  EXPECT_EQ(spec.training().max_steps(), 5);
  EXPECT_EQ(spec.model(), At("base"));
}

// The job file is named by a path relative to where the user stands.
TEST_F(JobFileTest, TheFileItselfMayBeRelative) {
  std::ofstream(folder_ / "jobs/here.yaml") << "model: ./m";
  const fs::path before = fs::current_path();
  fs::current_path(folder_ / "jobs");
  const auto spec = ReadJob("here.yaml", {});
  fs::current_path(before);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model(), At("jobs/m"));
}

TEST_F(JobFileTest, ErrorsNameTheFile) {
  EXPECT_THAT(ReadJob(At("none.yaml"), {}).status().message(),
              HasSubstr("none.yaml: No such file"));
  EXPECT_THAT(ReadJob(At("base"), {}).status().message(), HasSubstr("is a folder"));
  std::ofstream(folder_ / "jobs/bad.yaml") << "model: m\nalpha: 8\n";
  EXPECT_EQ(ReadJob(At("jobs/bad.yaml"), {}).status().message(),
            At("jobs/bad.yaml") + ":2: unknown key \"alpha\"; did you mean lora.lora_alpha?");
  EXPECT_THAT(ReadJob(At("jobs/bad.yaml"), {"x"}).status().message(), HasSubstr("alpha"));
}

// A template is text for the daemon: that of a file beside the job, or what stands in the job. One
// word is the name of a template that the model has.
TEST_F(JobFileTest, ChatTemplateIsReadWhereItIsAFile) {
  std::ofstream(folder_ / "jobs/mine.jinja") << "{{ 1 }}";
  EXPECT_EQ(Read("model: /m\nchat_template: mine.jinja").chat_template(), "{{ 1 }}");
  EXPECT_EQ(Read("model: /m\nchat_template: ../jobs/mine.jinja").chat_template(), "{{ 1 }}");
  EXPECT_EQ(Read("model: /m\nchat_template: '{% if x %}a{% endif %}'").chat_template(),
            "{% if x %}a{% endif %}");
  EXPECT_EQ(Read("model: /m\nchat_template: tool_use").chat_template(), "tool_use");
  std::ofstream(folder_ / "jobs/bad.yaml") << "model: /m\nchat_template: none.jinja\n";
  EXPECT_THAT(ReadJob(At("jobs/bad.yaml"), {}).status().message(),
              HasSubstr("none.jinja: No such file"));
}

// The examples as they stand, with their paths resolved.
TEST_F(JobFileTest, Examples) {
  const std::string examples = std::string(getenv("SNUG_SOURCE_DIR")) + "/tests/data/examples";
  const auto lora = ReadJob(examples + "/lora.yaml", {"training.max_steps=5"});
  ASSERT_TRUE(lora.ok()) << lora.status();
  EXPECT_EQ(lora->model(), examples + "/model");
  EXPECT_EQ(lora->dataset(), examples + "/train.jsonl");
  EXPECT_EQ(lora->eval_dataset(), examples + "/eval.jsonl");
  EXPECT_EQ(lora->training().max_steps(), 5);
  EXPECT_TRUE(ReadJob(examples + "/full.yaml", {}).ok());
}

}  // namespace
}  // namespace snug::client
