// Metrics against those of scikit-learn 1.9.1 and scipy 1.17.1 of the same labels: the literal
// values below are accuracy_score's, f1_score's, matthews_corrcoef's, mean_squared_error's,
// pearsonr's and spearmanr's.
#include "worker/train/evaluation_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "worker/program/eval_metrics.h"

namespace snug::train {
namespace {

using program::ModelConfig;
using program::Problem;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pair;

constexpr double kExact = 1e-14;

ModelConfig Classifier(int64_t labels, Problem problem = Problem::kSingleLabel) {
  ModelConfig config;
  config.task = program::Task::kSequenceClassification;
  config.problem = problem;
  config.labels = labels;
  return config;
}

// Logits whose largest is the class, told in batches of three.
Figures OfClasses(int64_t classes, const std::vector<int32_t>& labels,
                  const std::vector<int32_t>& predicted) {
  EvaluationSums sums(Classifier(classes), static_cast<int64_t>(labels.size()));
  for (size_t begin = 0; begin < labels.size(); begin += 3) {
    const size_t end = std::min(begin + 3, labels.size());
    std::vector<float> logits;
    for (size_t row = begin; row < end; ++row) {
      for (int32_t v = 0; v < classes; ++v) logits.push_back(v == predicted[row] ? 0.5f : -1.0f);
    }
    sums.Add({.rows = static_cast<int64_t>(end - begin),
              .logits = logits.data(),
              .labels = labels.data() + begin});
  }
  return sums.Metrics();
}

Figures OfTargets(const ModelConfig& config, const std::vector<float>& logits,
                  const std::vector<float>& targets) {
  const auto rows = static_cast<int64_t>(logits.size()) / config.labels;
  EvaluationSums sums(config, rows);
  for (int64_t row = 0; row < rows; ++row)
    sums.Add({.rows = 1,
              .logits = logits.data() + row * config.labels,
              .targets = targets.data() + row * config.labels});
  return sums.Metrics();
}

TEST(EvaluationSumsTest, OfThreeClasses) {
  EXPECT_THAT(
      OfClasses(3, {0, 1, 1, 0, 1, 2, 2, 0, 1, 1}, {0, 1, 0, 0, 1, 2, 1, 2, 1, 1}),
      ElementsAre(Pair("accuracy", 0.7), Pair("f1_macro", DoubleNear(0.6555555555555556, kExact)),
                  Pair("matthews_correlation", DoubleNear(0.5161290322580645, kExact))));
}

// A class that is no label and is predicted counts with an F1 of 0; one that is neither does not.
TEST(EvaluationSumsTest, AClassThatDoesNotOccur) {
  for (const int64_t classes : {4, 6})
    EXPECT_THAT(
        OfClasses(classes, {0, 1, 1, 0, 1, 2, 2, 0, 1, 1}, {0, 1, 0, 0, 1, 2, 1, 3, 1, 1}),
        ElementsAre(Pair("accuracy", 0.7), Pair("f1_macro", DoubleNear(0.5333333333333333, kExact)),
                    Pair("matthews_correlation", DoubleNear(0.5397505397508097, kExact))));
}

TEST(EvaluationSumsTest, OfTwoClassesTheSecondIsTheOneToFind) {
  EXPECT_THAT(OfClasses(2, {0, 1, 1, 0, 1, 1, 0, 1}, {0, 1, 0, 0, 1, 1, 1, 1}),
              ElementsAre(Pair("accuracy", 0.75), Pair("f1", DoubleNear(0.8, kExact)),
                          Pair("f1_macro", DoubleNear(0.7333333333333334, kExact)),
                          Pair("matthews_correlation", DoubleNear(0.4666666666666667, kExact))));
}

TEST(EvaluationSumsTest, WhatDividesByNothingIsNothing) {
  EXPECT_THAT(OfClasses(2, {0, 1, 1, 0, 1, 1, 0, 1}, std::vector<int32_t>(8, 0)),
              ElementsAre(Pair("accuracy", 0.375), Pair("f1", 0.0),
                          Pair("f1_macro", DoubleNear(0.2727272727272727, kExact)),
                          Pair("matthews_correlation", 0.0)));
  EXPECT_THAT(OfClasses(2, {0, 0, 0, 0}, {0, 0, 0, 0}),
              ElementsAre(Pair("accuracy", 1.0), Pair("f1", 0.0), Pair("f1_macro", 1.0),
                          Pair("matthews_correlation", 0.0)));
}

// numpy's argmax takes the first, which is what transformers' figures are made of.
TEST(EvaluationSumsTest, OfLogitsThatAreAlikeTheFirstCounts) {
  EvaluationSums sums(Classifier(3), 2);
  const std::vector<float> logits = {1.0f, 2.0f, 2.0f, 2.0f, 2.0f, 2.0f};
  const std::vector<int32_t> labels = {2, 0};
  sums.Add({.rows = 2, .logits = logits.data(), .labels = labels.data()});
  EXPECT_EQ(sums.Metrics()["accuracy"], 0.5);
}

// Of four labels, the last of which is never there and never predicted: its F1 is 0, and counts.
TEST(EvaluationSumsTest, OfSeveralLabels) {
  const std::vector<float> labels = {1, 0, 1, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0};
  const std::vector<float> predicted = {1, 0, 1, 0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  std::vector<float> logits;
  for (const float one : predicted) logits.push_back(one > 0.0f ? 0.01f : 0.0f);
  EXPECT_THAT(
      OfTargets(Classifier(4, Problem::kMultiLabel), logits, labels),
      ElementsAre(Pair("accuracy", 0.4), Pair("f1_macro", DoubleNear(0.5333333333333333, kExact)),
                  Pair("f1_micro", DoubleNear(0.7272727272727273, kExact))));
}

TEST(EvaluationSumsTest, OfNumbers) {
  EXPECT_THAT(OfTargets(Classifier(1, Problem::kRegression), {1.5f, -0.5f, 2, 2, 3.25f, -4},
                        {1, 0, 2.5f, 2, 2, -3}),
              ElementsAre(Pair("mse", DoubleNear(3.3125 / 6, kExact)),
                          Pair("pearson", DoubleNear(0.9681552016489868, kExact)),
                          Pair("spearman", DoubleNear(0.8676470588235294, kExact))));
}

// Each output has its own correlation: the figure is their mean.
TEST(EvaluationSumsTest, OfSeveralNumbers) {
  EXPECT_THAT(OfTargets(Classifier(2, Problem::kRegression), {1.5f, 10, -0.5f, 11, 2, 9, 2, 8},
                        {1, 1, 0, 2, 2.5f, 3, 2, 4}),
              ElementsAre(Pair("mse", 26.84375),
                          Pair("pearson", DoubleNear((0.9156880180284752 - 0.8) / 2, kExact)),
                          Pair("spearman",
                               DoubleNear((0.9486832980505139 - 0.7999999999999999) / 2, kExact))));
}

// At 2^20 float32 has steps of 1/8: these numbers are exact.
TEST(EvaluationSumsTest, ALargeMeanTakesNothing) {
  const float far = 1 << 20;
  Figures figures = OfTargets(Classifier(1, Problem::kRegression),
                              {far + 1.5f, far - 0.5f, far + 2, far + 2, far + 3.25f, far - 4},
                              {1, 0, 2.5f, 2, 2, -3});
  EXPECT_NEAR(figures["pearson"], 0.9681552016489868, 1e-10);
}

// scipy gives NaN there.
TEST(EvaluationSumsTest, NumbersThatAreAllTheSameHaveNoCorrelation) {
  for (const auto& [logits, targets] :
       std::vector<std::pair<std::vector<float>, std::vector<float>>>{
           {{2, 2, 2}, {1, 2, 3}}, {{1, 2, 3}, {0.1f, 0.1f, 0.1f}}, {{1}, {2}}})
    EXPECT_THAT(OfTargets(Classifier(1, Problem::kRegression), logits, targets),
                ElementsAre(Pair("mse", testing::Gt(0.0))));
}

TEST(EvaluationSumsTest, BeyondTheBoundNothingIsRanked) {
  const ModelConfig config = Classifier(2, Problem::kRegression);
  for (const int64_t rows : {program::kMaxRankedNumbers / 2, program::kMaxRankedNumbers / 2 + 1}) {
    EvaluationSums sums(config, rows);
    const std::vector<float> numbers = {1, 2, 3, 5};
    sums.Add({.rows = 2, .logits = numbers.data(), .targets = numbers.data()});
    EXPECT_EQ(sums.Metrics().contains("spearman"), program::HasRanks(rows, 2)) << rows;
    EXPECT_NEAR(sums.Metrics()["pearson"], 1.0, kExact);
  }
}

// Those by which a job may choose its best evaluation are those that there are.
TEST(EvaluationSumsTest, EachTaskHasTheMetricsThatItSays) {
  for (const Problem problem :
       {Problem::kSingleLabel, Problem::kMultiLabel, Problem::kRegression}) {
    for (const int64_t labels : {2, 3}) {
      const ModelConfig config = Classifier(labels, problem);
      EvaluationSums sums(config, 2);
      std::vector<float> numbers(static_cast<size_t>(2 * labels));
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
      const std::vector<int32_t> classes = {0, 1};
      sums.Add({.rows = 2,
                .logits = numbers.data(),
                .labels = classes.data(),
                .targets = numbers.data()});
      std::vector<std::string> said, found = {"loss"};
      for (const auto metric : program::EvalMetricsOf(config, /*generates=*/false))
        said.emplace_back(metric);
      for (const auto& [name, value] : sums.Metrics()) found.push_back(name);
      EXPECT_THAT(found, testing::UnorderedElementsAreArray(said));
      for (const std::string& name : said)
        EXPECT_TRUE(program::IsEvalMetric(name) && program::IsEvalMetric("eval_" + name)) << name;
    }
  }
}

TEST(EvaluationSumsTest, BytesAreCountsOrNumbersAndRanks) {
  using program::EvaluationBytes;
  EXPECT_EQ(EvaluationBytes(Classifier(3), 1000), 3 * sizeof(ClassCounts));
  EXPECT_EQ(EvaluationBytes(Classifier(3, Problem::kMultiLabel), 1000), 3 * sizeof(ClassCounts));
  EXPECT_EQ(EvaluationBytes(Classifier(3, Problem::kRegression), 1000),
            3 * sizeof(PairSums) + 1000 * 3 * 2 * sizeof(float) +
                1000 * (sizeof(uint32_t) + 2 * sizeof(double)));
  EXPECT_EQ(EvaluationBytes(Classifier(3, Problem::kRegression), int64_t{1} << 40),
            3 * sizeof(PairSums));
  EXPECT_EQ(EvaluationBytes(ModelConfig(), 1000), 0);
}

}  // namespace
}  // namespace snug::train
