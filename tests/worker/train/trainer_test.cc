// The trainer on real files, without a daemon: what it takes, and where it stops.
#include "worker/train/trainer.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/checkpoint/testbed.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/train/test_rows.h"
#include "tests/worker/train/toy_job.h"
#include "tests/worker/train/trainer_testing.h"
#include "worker/train/prompts.h"

namespace snug::train {
namespace {

using checkpoint::TempFolder;
using checkpoint::WriteText;
using execute::TestDevice;
using program::DType;
using program::FullMode;
using program::LoraMode;
using program::TrainingMode;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Status OneStep(Trainer& trainer) {
  const auto step = trainer.AccumulateGradients();
  return step.ok() ? trainer.ApplyGradients(*step) : step.status();
}

// All that an attempt does with its memory.
absl::Status StepAndEvaluate(const AttemptOptions& attempt, Memory* memory) {
  TestDevice().allocator().ResetPeak();
  const auto trainer = Trainer::Create(attempt, TestDevice());
  if (!trainer.ok()) return trainer.status();
  absl::Status status = OneStep(**trainer);
  if (status.ok()) status = (*trainer)->Evaluate().status();
  *memory = (*trainer)->memory();
  return status;
}

// Mapped and converted weights alike: the cap that was predicted from config.json is reached and
// enough, and one byte less is not.
TEST_F(TrainerTest, ThePredictedPeakIsEnoughAndAByteLessIsNot) {
  TrainingMode coded = FullMode(DType::kBF16);
  coded.moments = program::MomentKind::k8Bit;
  TrainingMode nf4 = LoraMode(), int8 = LoraMode({"q_proj"}, DType::kBF16);
  nf4.quantization = program::Quantization::kNf4;
  int8.quantization = program::Quantization::kInt8;
  for (const TrainingMode& mode :
       {FullMode(), LoraMode(), LoraMode({"q_proj"}, DType::kBF16), FullMode(DType::kBF16),
        LoraMode({"lm_head", "embed_tokens"}), coded, nf4, int8, Releasing(FullMode()),
        Releasing(coded), WithOptimizerOnHost(LoraMode()), WithOptimizerOnHost(coded)}) {
    for (const char* dtype : {"F32", "BF16", "F16"}) {
      for (int shift : {0, 1}) {
        ToyModel model = {.dtype = dtype, .shift = shift};
        if (mode.moments == program::MomentKind::k8Bit) model.sizes = {2, 64, 4, 2, 80, 61};
        AttemptOptions attempt = Attempt(mode, model);
        attempt.context_bytes = kContextBytes;
        attempt.cap_bytes = PredictionOf(attempt).bytes.total();
        Memory memory;
        SNUG_ASSERT_OK(StepAndEvaluate(attempt, &memory));
        EXPECT_EQ(memory.peak_bytes, attempt.cap_bytes) << dtype << " shifted by " << shift;
        --attempt.cap_bytes;
        EXPECT_EQ(StepAndEvaluate(attempt, &memory).code(), absl::StatusCode::kResourceExhausted);
      }
    }
  }
}

// A plan of another binary, or of other data: the worker says by which component, before it takes
// any memory.
TEST_F(TrainerTest, APlanThatPromisesOtherBytesIsRefusedByComponent) {
  const std::pair<const char*, int64_t program::Components::*> components[] = {
      {"weights", &program::Components::weights},
      {"adapter", &program::Components::adapter},
      {"gradients", &program::Components::gradients},
      {"optimizer", &program::Components::optimizer},
      {"inputs", &program::Components::inputs},
      {"arena", &program::Components::arena},
      {"host", &program::Components::host}};
  AttemptOptions attempt = Attempt(LoraMode({"q_proj"}, DType::kBF16));
  const program::Components planned = PredictionOf(attempt).bytes;
  attempt.promised = planned;
  Memory memory;
  SNUG_ASSERT_OK(StepAndEvaluate(attempt, &memory));
  for (const auto& [name, component] : components) {
    for (const int64_t change : {-64, 64}) {
      attempt.promised = planned;
      (*attempt.promised).*component += change;
      attempt.cap_bytes = attempt.promised->total();
      const absl::Status refused = Trainer::Create(attempt, TestDevice()).status();
      EXPECT_EQ(refused.code(), absl::StatusCode::kInternal) << refused;
      EXPECT_EQ(std::string(refused.message()),
                absl::StrCat(name, ": ", planned.*component + change, " bytes by the plan, ",
                             planned.*component, " by the worker"));
    }
  }
}

// The daemon's view of added tokens is config.json and the tokenizer, the worker's the matrices.
TEST_F(TrainerTest, ThePredictedPeakHasTheRowsOfAddedTokens) {
  TrainingMode saved = LoraMode();
  saved.adapter.modules_to_save = {"embed_tokens", "lm_head"};
  for (const TrainingMode& mode : {FullMode(), FullMode(DType::kBF16), saved}) {
    AttemptOptions attempt = Attempt(mode);
    const int64_t before = PredictionOf(attempt).bytes.total();
    nlohmann::json vocabulary;
    for (int id = 0; id < ToyModel().sizes.vocabulary; ++id) vocabulary[std::to_string(id)] = id;
    WriteText(folder_ / "model/tokenizer.json",
              nlohmann::json{{"model", {{"vocab", vocabulary}}}}.dump());
    WriteText(folder_ / "data/dataset.json", R"({"first_added_id": 61})");
    for (int i = 0; i < 40; ++i) attempt.added_tokens.push_back(absl::StrCat("<", i, ">"));
    attempt.cap_bytes = PredictionOf(attempt).bytes.total();
    EXPECT_GT(attempt.cap_bytes, before);
    Memory memory;
    SNUG_ASSERT_OK(StepAndEvaluate(attempt, &memory));
    EXPECT_EQ(memory.peak_bytes, attempt.cap_bytes);
    WriteText(folder_ / "data/dataset.json", R"({"first_added_id": 60})");
    EXPECT_THAT(std::string(StepAndEvaluate(attempt, &memory).message()),
                HasSubstr("begin at 60 in the prepared dataset, and at 61 in the model"));
  }
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Classes for who classifies, and no more of them than the head has.
TEST_F(TrainerTest, TheRowsMustBeThoseOfTheTask) {
  AttemptOptions attempt = Attempt(FullMode());
  const auto refusal = [&] {
    return std::string(Trainer::Create(attempt, TestDevice()).status().message());
  };
  attempt.task = {program::Task::kSequenceClassification, 3};
  EXPECT_THAT(refusal(), HasSubstr("the rows of the dataset have no classes"));
  WriteTensors(folder_ / "data/dataset.safetensors",
               {{"row_offsets", "I64", {3}, BytesOf<int64_t>({0, 2, 4})},
                {"input_ids", "I32", {4}, BytesOf<int32_t>({1, 2, 3, 4})},
                {"loss_weights", "F32", {4}, BytesOf<float>({0, 1, 0, 1})},
                {"labels", "I32", {2}, BytesOf<int32_t>({2, 3})}});
  EXPECT_THAT(refusal(), HasSubstr("row 1 of the dataset has class 3, the head has 3"));
  attempt.task = {};
  EXPECT_THAT(refusal(), HasSubstr("task: causal_lm, but the rows of the dataset have classes"));
  attempt.task = {program::Task::kSequenceClassification, 4, program::Problem::kRegression};
  EXPECT_THAT(refusal(), HasSubstr("problem_type: regression with num_labels 4, but the rows of "
                                   "the dataset have 0 numbers each"));
}

TEST_F(TrainerTest, RowsThatAreMaskedAreOfOneTask) {
  AttemptOptions attempt = Attempt(FullMode());
  const auto refusal = [&](const char* about) {
    WriteText(folder_ / "data/dataset.json", about);
    return std::string(Trainer::Create(attempt, TestDevice()).status().message());
  };
  EXPECT_THAT(refusal(R"({"mask_token_id": 4, "mask_vocabulary": 20})"),
              HasSubstr("task: causal_lm, but the rows of the dataset are masked"));
  EXPECT_THAT(refusal(R"({"mask_token_id": 400, "mask_vocabulary": 20})"),
              HasSubstr("mask_token_id 400 and mask_vocabulary 20 are not within the model's"));
  EXPECT_THAT(refusal(R"({"mask_token_id": 4})"), HasSubstr("mask_vocabulary null"));
}

// A class of each token, below the head's count, or none.
TEST_F(TrainerTest, TokensMustHaveTheirClasses) {
  AttemptOptions attempt = Attempt(FullMode());
  const auto write = [&](const std::vector<int32_t>& labels) {
    WriteTensors(folder_ / "data/dataset.safetensors",
                 {{"row_offsets", "I64", {3}, BytesOf<int64_t>({0, 2, 4})},
                  {"input_ids", "I32", {4}, BytesOf<int32_t>({1, 2, 3, 4})},
                  {"loss_weights", "F32", {4}, BytesOf<float>({0, 1, 0, 1})},
                  {"token_labels", "I32", {static_cast<int64_t>(labels.size())}, BytesOf(labels)}});
  };
  const auto refusal = [&] {
    return std::string(Trainer::Create(attempt, TestDevice()).status().message());
  };
  write({-100, 0, -100, 1});
  EXPECT_THAT(refusal(), HasSubstr("task: causal_lm, but the rows of the dataset have classes of "
                                   "tokens"));
  write({-100, 0, -100});
  EXPECT_THAT(refusal(), HasSubstr("3 token labels for 4 tokens"));
}

// Their numbers lie in the batch as the daemon predicts it.
TEST_F(TrainerTest, DocumentsWithNumbersTakeWhatIsPredicted) {
  AttemptOptions attempt = Attempt(FullMode());
  attempt.eval_data = attempt.train_data;
  const auto write = [&](const std::vector<float>& labels) {
    WriteTensors(folder_ / "data/dataset.safetensors",
                 {{"row_offsets", "I64", {3}, BytesOf<int64_t>({0, 2, 4})},
                  {"input_ids", "I32", {4}, BytesOf<int32_t>({1, 2, 3, 4})},
                  {"loss_weights", "F32", {4}, BytesOf<float>({0, 1, 0, 1})},
                  {"labels", "F32", {2, 3}, BytesOf<float>(labels)}});
  };
  write({0, 1, 1, 0, 0.5, 0});
  attempt.key = {.tokens = 4, .documents = 2, .longest_document = 2};
  for (const program::Problem problem :
       {program::Problem::kRegression, program::Problem::kMultiLabel}) {
    attempt.task = {program::Task::kSequenceClassification, 3, problem};
    program::ModelConfig config = *program::ReadModelConfig(attempt.model_dir);
    ASSERT_TRUE(program::ChooseTask(attempt.task, config).ok());
    const program::Program program = *program::BuildProgram(config, attempt.mode);
    attempt.plan = program::NamedPlanOf(program, program::RecomputePlan(program, 0));
    attempt.cap_bytes = PredictionOf(attempt).bytes.total();
    Memory memory;
    SNUG_ASSERT_OK(StepAndEvaluate(attempt, &memory));
    EXPECT_EQ(memory.peak_bytes, attempt.cap_bytes);
  }
  write({0, 1, 1, 0, NAN, 0});
  EXPECT_THAT(std::string(Trainer::Create(attempt, TestDevice()).status().message()),
              HasSubstr("row 1: a label is not finite"));
}

// T x T never exists, nor does a mask of it: what a job reports as its peak, less what does not
// depend on the batch, at most 2.05 times for twice the tokens.
TEST_F(TrainerTest, PeakLessStaticGrowsLinearlyWithTheTokens) {
  TrainingOptions training = ToyTraining();
  training.batch_rows = training.accumulation = 1;
  const ToyModel model = {.sizes = {1, 32, 2, 1, 64, 64}};
  double before = 0.0;
  for (int64_t tokens : {2048, 4096, 8192, 16384}) {
    const AttemptOptions attempt = Attempt(FullMode(), model, training, {tokens});
    const program::Components bytes = PredictionOf(attempt).bytes;
    Memory memory;
    SNUG_ASSERT_OK(StepAndEvaluate(attempt, &memory));
    const int64_t fixed = bytes.total() - bytes.arena - bytes.inputs;
    const auto peak = static_cast<double>(memory.peak_bytes - fixed);
    std::printf("%lld tokens: peak less static %.0f bytes\n", static_cast<long long>(tokens), peak);
    if (before > 0.0) {
      EXPECT_LE(peak / before, 2.05) << tokens;
    }
    before = peak;
  }
}

// "0, 3, 7" of the micro-batches of an optimizer step, counted from 0.
std::string RowsOfStep(const AttemptOptions& attempt, int step, bool first_micro_batch_only) {
  const TestRows dataset(kRows);
  BatchWalk walk(dataset.rows(), attempt.training);
  for (int s = 0; s < step; ++s) walk.StepDone();
  BatchRange range = walk.NextStep();
  if (first_micro_batch_only) range.end = range.begin + 1;
  std::vector<int64_t> rows = RowsOf(walk.plan(), range);
  std::sort(rows.begin(), rows.end());
  return absl::StrJoin(rows, ", ");
}

// A learning rate that throws the weights away: the first step still has a loss, the second none.
TEST_F(TrainerTest, ALossThatIsNotFiniteNamesTheStepAndTheRows) {
  TrainingOptions training = ToyTraining();
  training.learning_rate = 1e38;
  const AttemptOptions attempt = Attempt(FullMode(), {}, training);
  const auto trainer = *Trainer::Create(attempt, TestDevice());
  SNUG_ASSERT_OK(OneStep(*trainer));
  const absl::Status second = OneStep(*trainer);
  EXPECT_EQ(second.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(second.message()),
              AllOf(HasSubstr("step 2: the loss is "),
                    HasSubstr(absl::StrCat("rows of the dataset, from 0: ",
                                           RowsOfStep(attempt, 1, true)))));
  EXPECT_EQ(trainer->global_step(), 1);
}

// What is saved after a step that failed belongs to the steps before it: no row of it is lost to
// whoever goes on from there.
TEST_F(TrainerTest, AStepThatFailsLeavesTheDataWhereItWas) {
  TrainingOptions training = ToyTraining();
  training.learning_rate = 1e38;
  const auto trainer = *Trainer::Create(Attempt(FullMode(), {}, training), TestDevice());
  SNUG_ASSERT_OK(OneStep(*trainer));
  const DataCursor before = trainer->cursor();
  const double epochs = trainer->epochs_done();
  const absl::Status failed = OneStep(*trainer);
  EXPECT_EQ(failed.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(trainer->cursor().epoch, before.epoch);
  EXPECT_EQ(trainer->cursor().micro_batch, before.micro_batch);
  EXPECT_EQ(trainer->epochs_done(), epochs);
  EXPECT_EQ(OneStep(*trainer), failed);  // The same rows again.
}

// Logits a thousand times as steep as they were.
void SharpenHead(const std::string& folder) {
  std::vector<ToyTensor> tensors = TensorsOf({});
  for (ToyTensor& tensor : tensors) {
    if (tensor.key != "model.norm.weight") continue;
    auto* gamma = reinterpret_cast<float*>(tensor.bytes.data());
    for (int64_t i = 0; i < tensor.shape[0]; ++i) gamma[i] *= 1000.0f;
  }
  WriteModel(folder, {}, tensors);
}

// B begins at zero, so that the loss does not feel the scale of the adapter; B's gradient does.
TEST_F(TrainerTest, AGradientThatIsNotFiniteNamesTheStepAndTheRows) {
  TrainingMode mode = LoraMode({"down_proj"});
  mode.adapter.rank = 1;
  mode.adapter.alpha = 1e37;
  const AttemptOptions attempt = Attempt(mode);
  SharpenHead(attempt.model_dir);
  const auto trainer = *Trainer::Create(attempt, TestDevice());
  const absl::Status first = OneStep(*trainer);
  EXPECT_EQ(first.code(), absl::StatusCode::kOutOfRange) << first;
  EXPECT_THAT(std::string(first.message()),
              AllOf(HasSubstr("step 1: the norm of the gradients is "),
                    HasSubstr(absl::StrCat("rows of the dataset, from 0: ",
                                           RowsOfStep(attempt, 0, false)))));
  EXPECT_EQ(trainer->global_step(), 0);
}

// The last step can be the one that breaks the weights; only an evaluation sees it then.
TEST_F(TrainerTest, AnEvaluationThatIsNotFiniteNamesTheStepAndTheRows) {
  TrainingOptions training = ToyTraining();
  training.learning_rate = 1e38;
  const std::pair<const char*, const char*> sets[] = {{"last training batch", "dataset"},
                                                      {"evaluation", "evaluation set"}};
  for (const auto& [what, set] : sets) {
    AttemptOptions attempt = Attempt(FullMode(), {}, training);
    const auto trainer = *Trainer::Create(attempt, TestDevice());
    SNUG_ASSERT_OK(OneStep(*trainer));
    const absl::Status evaluated = trainer->Evaluate().status();
    EXPECT_EQ(evaluated.code(), absl::StatusCode::kOutOfRange) << evaluated;
    EXPECT_THAT(std::string(evaluated.message()),
                AllOf(HasSubstr(absl::StrCat("step 1: the loss of the ", what, " is ")),
                      HasSubstr(absl::StrCat("rows of the ", set, ", from 0: "))));
    WriteData(folder_ / "eval", {5, 9}, ToyModel().sizes.vocabulary);
  }
}

// Loss and gradients of one step over all rows.
struct Gradients {
  double loss = 0.0;
  std::vector<float> values;
};

Gradients GradientsOf(const AttemptOptions& attempt) {
  const auto trainer = *Trainer::Create(attempt, TestDevice());
  Gradients gradients = {.loss = trainer->AccumulateGradients()->loss, .values = {}};
  for (const execute::ParameterView& view : trainer->parameters().views()) {
    const auto* values = view.gradient.as<float>();
    if (values != nullptr)
      gradients.values.insert(gradients.values.end(), values, values + view.gradient.elements());
  }
  return gradients;
}

double Distance(const Gradients& a, const Gradients& b) {
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    difference += std::pow(a.values[i] - b.values[i], 2);
    norm += std::pow(b.values[i], 2);
  }
  return std::sqrt(difference / norm);
}

// One row at a time; all rows side by side, without padding; packed into sequences, of which the
// step has several in one micro-batch and several micro-batches.
TEST_F(TrainerTest, PackedUnpackedAndSingleRowsGiveTheSameGradients) {
  for (const TrainingMode& mode : {FullMode(), LoraMode()}) {
    TrainingOptions single = ToyTraining();
    single.batch_rows = 1;
    single.accumulation = static_cast<int64_t>(kRows.size());
    const Gradients expected = GradientsOf(Attempt(mode, {}, single));
    TrainingOptions whole = ToyTraining();
    whole.batch_rows = static_cast<int64_t>(kRows.size());
    whole.accumulation = 1;
    TrainingOptions packed = ToyTraining();
    packed.packing = true;
    packed.max_seq_length = 24;
    for (const TrainingOptions& training : {whole, packed}) {
      const AttemptOptions attempt = Attempt(mode, {}, training);
      const Gradients actual = GradientsOf(attempt);
      EXPECT_NEAR(actual.loss, expected.loss, 1e-6 * expected.loss);
      EXPECT_LT(Distance(actual, expected), 2e-6);
    }
    // Were its documents not kept apart, the difference would be another: a step of other rows is.
    TrainingOptions part = whole;
    part.batch_rows -= 1;
    EXPECT_GT(Distance(GradientsOf(Attempt(mode, {}, part)), expected), 1e-3);
  }
}

// An attempt whose samples need the largest arena, and larger inputs than its batches.
AttemptOptions Answering(AttemptOptions attempt, const std::string& file) {
  WritePrompts(file, {5, 40, 1}, ToyModel().sizes.vocabulary);
  attempt.prompts_file = file;
  attempt.training.samples = {.max_new_tokens = 200};
  return attempt;
}

// The cache of keys lies in the arena: the cap that was predicted is reached and enough, and one
// byte less is not.
TEST_F(TrainerTest, SamplesStayWithinThePrediction) {
  TrainingOptions training = ToyTraining();
  training.batch_rows = 1;
  for (const TrainingMode& mode : {FullMode(), LoraMode({"q_proj"}, DType::kBF16)}) {
    AttemptOptions attempt =
        Answering(Attempt(mode, {}, training, {2, 3}), folder_ / "prompts.json");
    attempt.cap_bytes = PredictionOf(attempt).bytes.total();
    TestDevice().allocator().ResetPeak();
    const auto trainer = *Trainer::Create(attempt, TestDevice());
    SNUG_ASSERT_OK(OneStep(*trainer));
    const auto samples = trainer->AnswerPrompts();
    SNUG_ASSERT_OK(samples);
    EXPECT_EQ(samples->size(), 3u);
    EXPECT_EQ(trainer->memory().peak_bytes, attempt.cap_bytes);
    attempt.prompts_file.clear();
    EXPECT_LT(PredictionOf(attempt).bytes.arena, trainer->memory().arena_bytes);
  }
}

// What comes out token by token, by the cache of keys, is what comes out when all before it is the
// prompt; and a training step in between, which uses the same memory, changes nothing of that.
TEST_F(TrainerTest, AnswersAreThoseOfLongerPrompts) {
  AttemptOptions attempt = Answering(Attempt(FullMode()), folder_ / "prompts.json");
  attempt.training.samples.max_new_tokens = 24;
  const auto first = *(*Trainer::Create(attempt, TestDevice()))->AnswerPrompts();
  const Prompts prompts = *Prompts::Read(attempt.prompts_file, ToyModel().sizes.vocabulary);
  const std::vector<int32_t>& answer = first[1].tokens;
  ASSERT_GE(answer.size(), 8u);
  std::vector<int32_t> ids = prompts.prompts()[1].ids;
  ids.insert(ids.end(), answer.begin(), answer.begin() + 4);
  std::string file = checkpoint::ReadText(attempt.prompts_file);
  const std::string before = absl::StrCat("[", absl::StrJoin(prompts.prompts()[1].ids, ","), "]");
  file.replace(file.find(before), before.size(), absl::StrCat("[", absl::StrJoin(ids, ","), "]"));
  checkpoint::WriteText(attempt.prompts_file, file);
  const auto longer = *(*Trainer::Create(attempt, TestDevice()))->AnswerPrompts();
  const std::vector<int32_t> rest(answer.begin() + 4, answer.end());
  EXPECT_EQ(std::vector<int32_t>(longer[1].tokens.begin(),
                                 longer[1].tokens.begin() + static_cast<int64_t>(rest.size())),
            rest);
  EXPECT_EQ(longer[0].tokens, first[0].tokens);
  EXPECT_EQ(first[1].completion, absl::StrCat(absl::StrJoin(answer, " "), " "));
}

}  // namespace
}  // namespace snug::train
