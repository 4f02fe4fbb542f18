#include "client/serving.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace snug::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::Job Job(v1::JobSpec::Method method, v1::JobSpec::Task task = v1::JobSpec::TASK_CAUSAL_LM) {
  v1::Job job;
  job.set_id("K3f");
  job.mutable_spec()->set_model("/models/base");
  job.mutable_spec()->set_method(method);
  job.mutable_spec()->set_task(task);
  job.mutable_output()->set_loss(1.5);
  v1::ReaderReport& vllm = *job.mutable_output()->add_readers();
  vllm.set_reader("vLLM");
  vllm.set_loads(true);
  return job;
}

std::vector<std::string> Readers(const v1::Job& job) {
  std::vector<std::string> readers;
  for (const Serving& serving : ServingOf(job, "out")) readers.push_back(serving.reader);
  return readers;
}

std::vector<std::string> LinesOf(const v1::Job& job, size_t index, const std::string& folder) {
  return ServingOf(job, folder).at(index).lines;
}

TEST(ServingTest, AnAdapterStandsBesideItsBase) {
  const v1::Job job = Job(v1::JobSpec::METHOD_LORA);
  EXPECT_THAT(
      LinesOf(job, 0, "out"),
      ElementsAre("from transformers import AutoModelForCausalLM", "from peft import PeftModel",
                  "base = AutoModelForCausalLM.from_pretrained(\"/models/base\")",
                  "model = PeftModel.from_pretrained(base, \"out\")"));
  EXPECT_THAT(LinesOf(job, 1, "out"),
              ElementsAre("vllm serve /models/base --enable-lora --lora-modules k3f=out"));
  EXPECT_THAT(LinesOf(job, 2, "out"),
              ElementsAre("python convert_hf_to_gguf.py /models/base --outfile k3f-base.gguf",
                          "python convert_lora_to_gguf.py out --base /models/base --outfile "
                          "k3f-adapter.gguf",
                          "llama-server -m k3f-base.gguf --lora k3f-adapter.gguf"));
  EXPECT_THAT(LinesOf(job, 3, "out"),
              ElementsAre("printf 'FROM ./k3f-base.gguf\\nADAPTER ./k3f-adapter.gguf\\n' > "
                          "Modelfile",
                          "ollama create k3f -f Modelfile", "ollama run k3f"));
}

TEST(ServingTest, AFullModelStandsAlone) {
  v1::Job job = Job(v1::JobSpec::METHOD_FULL);
  job.set_display_name("Our Answers!");
  EXPECT_THAT(LinesOf(job, 0, "it's"),
              ElementsAre("from transformers import AutoModelForCausalLM",
                          "model = AutoModelForCausalLM.from_pretrained(\"it's\")"));
  EXPECT_THAT(LinesOf(job, 1, "it's"),
              ElementsAre("vllm serve 'it'\\''s' --served-model-name our-answers"));
  EXPECT_THAT(LinesOf(job, 2, "out"),
              ElementsAre("python convert_hf_to_gguf.py out --outfile our-answers.gguf",
                          "llama-server -m our-answers.gguf"));
}

TEST(ServingTest, OfAMergedAdapterTheMergedModelIsServed) {
  v1::Job job = Job(v1::JobSpec::METHOD_LORA);
  job.mutable_spec()->set_merge(true);
  job.mutable_output()->mutable_readers(0)->set_loads(false);
  EXPECT_THAT(LinesOf(job, 1, "out"), ElementsAre("vllm serve out/merged --served-model-name k3f"));
  job.mutable_output()->set_merge_error("no room");
  EXPECT_THAT(Readers(job), ElementsAre("transformers"));
}

// llama.cpp scales by alpha / rank.
TEST(ServingTest, OnlyReadersThatLoadItAreNamed) {
  v1::Job job = Job(v1::JobSpec::METHOD_LORA);
  job.mutable_spec()->mutable_lora()->set_use_rslora(true);
  EXPECT_THAT(Readers(job), ElementsAre("transformers", "vLLM"));
  EXPECT_THAT(Readers(Job(v1::JobSpec::METHOD_FULL, v1::JobSpec::TASK_SEQ2SEQ_LM)),
              ElementsAre("transformers"));
  v1::Job reversible = Job(v1::JobSpec::METHOD_FULL);
  reversible.mutable_spec()->set_reversible("additive");
  EXPECT_THAT(LinesOf(reversible, 0, "out").back(),
              "model = AutoModelForCausalLM.from_pretrained(\"out\", trust_remote_code=True)");
  EXPECT_THAT(Readers(reversible), ElementsAre("transformers"));
  v1::Job running = Job(v1::JobSpec::METHOD_FULL);
  running.clear_output();
  EXPECT_THAT(Readers(running), IsEmpty());
}

TEST(ServingTest, EachTaskHasItsClass) {
  v1::Job job = Job(v1::JobSpec::METHOD_LORA, v1::JobSpec::TASK_SEQUENCE_CLASSIFICATION);
  job.mutable_spec()->set_num_labels(3);
  EXPECT_EQ(LinesOf(job, 0, "out")[2],
            "base = AutoModelForSequenceClassification.from_pretrained(\"/models/base\", "
            "num_labels=3)");
  job.mutable_spec()->set_problem_type("regression");
  EXPECT_EQ(LinesOf(job, 0, "out")[2],
            "base = AutoModelForSequenceClassification.from_pretrained(\"/models/base\", "
            "num_labels=3, problem_type=\"regression\")");
  const std::pair<v1::JobSpec::Task, const char*> classes[] = {
      {v1::JobSpec::TASK_TOKEN_CLASSIFICATION, "AutoModelForTokenClassification"},
      {v1::JobSpec::TASK_MASKED_LM, "AutoModelForMaskedLM"},
      {v1::JobSpec::TASK_SEQ2SEQ_LM, "AutoModelForSeq2SeqLM"},
      {v1::JobSpec::TASK_IMAGE_CLASSIFICATION, "AutoModelForImageClassification"}};
  for (const auto& [task, name] : classes)
    EXPECT_EQ(LinesOf(Job(v1::JobSpec::METHOD_FULL, task), 0, "out")[0],
              std::string("from transformers import ") + name);
}

TEST(ServingTest, ABaseThatAJobMadeIsFetchedFirst) {
  v1::Job job = Job(v1::JobSpec::METHOD_LORA);
  job.mutable_spec()->set_model("first");
  EXPECT_THAT(LinesOf(job, 0, "out"), ElementsAre("snug download first BASE"));
  EXPECT_EQ(ServingOf(job, "out")[2].lines[0],
            "vllm serve BASE --enable-lora --lora-modules k3f=out");
}

}  // namespace
}  // namespace snug::client
