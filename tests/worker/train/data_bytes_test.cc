// What a worker holds of a dataset of several million rows of a token or two, measured at malloc's
// door and by the system, against the prediction that the daemon makes of their number and lengths.
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/program/safetensors_files.h"
#include "worker/program/batching.h"
#include "worker/program/eval_metrics.h"
#include "worker/train/batches.h"
#include "worker/train/dataset.h"
#include "worker/train/evaluation_sums.h"

namespace {

std::atomic<int64_t> g_live_bytes, g_peak_bytes;

void* Taken(void* address) {
  if (address == nullptr) return nullptr;
  const int64_t live = g_live_bytes += static_cast<int64_t>(malloc_usable_size(address));
  if (live > g_peak_bytes) g_peak_bytes = live;
  return address;
}

void GiveBack(void* address) {
  if (address == nullptr) return;
  g_live_bytes -= static_cast<int64_t>(malloc_usable_size(address));
  std::free(address);
}

}  // namespace

void* operator new(size_t bytes) {
  void* address = Taken(std::malloc(bytes));
  if (address == nullptr) std::abort();
  return address;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return Taken(std::malloc(bytes));
}
void operator delete(void* address) noexcept { GiveBack(address); }
void operator delete(void* address, size_t) noexcept { GiveBack(address); }
void operator delete(void* address, const std::nothrow_t&) noexcept { GiveBack(address); }

namespace snug::train {
namespace {

constexpr int64_t kRows = 3'000'000, kEvalRows = 1'000'000;
constexpr int64_t kSlackBytes = 64 << 10;  // Names, headers, a message.

// Rows of 1, 2, 3, 1, 2, 3, ... tokens. Ids and weights are zeros that no disk holds.
std::string WriteRows(int64_t rows) {
  const std::filesystem::path folder = program::FreshDirectory();
  std::vector<int64_t> offsets = {0};
  for (int64_t row = 0; row < rows; ++row) offsets.push_back(offsets.back() + 1 + row % 3);
  const int64_t tokens = offsets.back(), ids = 8 * (rows + 1), weights = ids + 4 * tokens;
  const auto entry = [](const char* name, const char* dtype, int64_t shape, int64_t begin,
                        int64_t end) {
    return "\"" + std::string(name) + R"(":{"dtype":")" + dtype + R"(","shape":[)" +
           std::to_string(shape) + R"(],"data_offsets":[)" + std::to_string(begin) + "," +
           std::to_string(end) + "]}";
  };
  std::string header = "{" + entry("row_offsets", "I64", rows + 1, 0, ids) + "," +
                       entry("input_ids", "I32", tokens, ids, weights) + "," +
                       entry("loss_weights", "F32", tokens, weights, weights + 4 * tokens) + "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::filesystem::path path = folder / "dataset.safetensors";
  std::ofstream file(path, std::ios::binary);
  file << program::LittleEndian64(header.size()) << header;
  file.write(reinterpret_cast<const char*>(offsets.data()), ids);
  file.close();
  std::filesystem::resize_file(path, 8 + header.size() + static_cast<size_t>(weights + 4 * tokens));
  return folder.string();
}

// Of this process, what is no file's.
int64_t AnonymousBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return 1024 * std::stoll(line.substr(8));
  return -1;
}

struct Held {
  int64_t predicted = 0;
  int64_t allocated = 0;  // At its peak.
  int64_t resident = 0;   // The most that was seen of it.
};

// All that a trainer does with its rows: it counts the steps, walks into the second epoch with an
// evaluation in between, and resumes.
Held Hold(const std::string& training, const std::string& evaluation,
          const TrainingOptions& options) {
  Held held;
  malloc_trim(0);
  const int64_t live = g_live_bytes, anonymous = AnonymousBytes();
  g_peak_bytes = live;
  const auto see = [&] { held.resident = std::max(held.resident, AnonymousBytes() - anonymous); };
  {
    const Dataset dataset = *Dataset::Open(training, 10);
    const Dataset other = *Dataset::Open(evaluation, 10);
    held.predicted =
        program::DataBytes(dataset.rows().lengths(), other.rows().lengths(), BatchingOf(options));
    EXPECT_GT(TotalSteps(dataset.rows().lengths(), options), 1);
    BatchWalk walk(dataset.rows(), options);
    while (walk.cursor().epoch == 0) {
      const BatchRange range = walk.NextStep();
      EXPECT_FALSE(walk.plan().Batch(range.begin).empty());
      walk.StepDone();
    }
    see();
    walk.NextStep();
    const EpochPlan plan = EpochPlan::OfEvaluation(other.rows(), options);
    EXPECT_FALSE(plan.Batch(plan.micro_batches() - 1).empty());
    see();
  }
  held.allocated = g_peak_bytes - live;
  return held;
}

class DataBytesTest : public ::testing::TestWithParam<TrainingOptions> {};

TEST_P(DataBytesTest, ThePredictionIsWhatRowsTake) {
  static const std::string training = WriteRows(kRows), evaluation = WriteRows(kEvalRows);
  const Held held = Hold(training, evaluation, GetParam());
  std::printf("predicted %lld, allocated %lld, resident %lld bytes\n",
              static_cast<long long>(held.predicted), static_cast<long long>(held.allocated),
              static_cast<long long>(held.resident));
  EXPECT_LE(held.allocated, held.predicted + kSlackBytes);
  EXPECT_GE(held.allocated, held.predicted - kSlackBytes);
  EXPECT_LE(held.resident, held.predicted + (1 << 20));
  EXPECT_GE(held.resident, held.predicted / 2);
}

// What an evaluation of a regression gathers: all numbers up to the bound, sums beyond it.
TEST(EvaluationBytesTest, ThePredictionIsWhatAnEvaluationTakes) {
  program::ModelConfig config;
  config.task = program::Task::kSequenceClassification;
  config.problem = program::Problem::kRegression;
  config.labels = 2;
  for (const int64_t rows : {program::kMaxRankedNumbers / 2, program::kMaxRankedNumbers}) {
    const int64_t live = g_live_bytes;
    g_peak_bytes = live;
    EvaluationSums sums(config, rows);
    for (int64_t row = 0; row < rows; ++row) {
      const float logits[] = {static_cast<float>(row % 1000), static_cast<float>(-row)};
      const float targets[] = {static_cast<float>(row % 17), static_cast<float>(row)};
      sums.Add({.rows = 1, .logits = logits, .targets = targets});
    }
    EXPECT_EQ(sums.Metrics().contains("spearman"), rows * 2 <= program::kMaxRankedNumbers);
    EXPECT_NEAR(static_cast<double>(g_peak_bytes - live),
                static_cast<double>(program::EvaluationBytes(config, rows)), kSlackBytes);
  }
}

TrainingOptions Options(int64_t rows, bool packing, bool grouped = false) {
  TrainingOptions options;
  options.batch_rows = rows;
  options.accumulation = 4;
  options.packing = packing;
  options.group_by_length = grouped;
  options.max_seq_length = 64;
  return options;
}

// Alone in its micro-batch, in large ones, sorted in small pieces and in large ones, packed.
INSTANTIATE_TEST_SUITE_P(Batches, DataBytesTest,
                         ::testing::Values(Options(1, false), Options(1000, false),
                                           Options(1, false, true), Options(10'000, false, true),
                                           Options(1, true), Options(4, true)));

}  // namespace
}  // namespace snug::train
