// Daemons, shims and workers that are killed whenever it may be (tests/fault/crash/harness.h):
// nothing is lost, nothing doubled. And what the harness says of daemons that do lose or double.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "tests/fault/crash/harness.h"

namespace snug::crash {
namespace {

int64_t Number(const char* name, int64_t absent) {
  const char* text = std::getenv(name);
  int64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : absent;
}

Options OptionsOfEnvironment() {
  const Options options = {
      .cycles = Number("SNUG_CRASH_CYCLES", 500),
      .seed = static_cast<uint32_t>(
          Number("SNUG_FAULT_SEED", absl::ToUnixMicros(absl::Now()) % (int64_t{1} << 32))),
      .each_hit = Number("SNUG_CRASH_EACH_HIT", 0)};
  printf("SNUG_FAULT_SEED=%u\n", options.seed);
  fflush(stdout);
  return options;
}

// F-03
TEST(CrashTest, NothingIsLostOrDoubledWheneverSomethingIsKilled) {
  const Options options = OptionsOfEnvironment();
  const absl::StatusOr<Summary> summary = snug::crash::Run(options);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_TRUE(Report(*summary, options.cycles, options.each_hit));
  EXPECT_GE(summary->counted, options.cycles);
  EXPECT_GT(summary->outputs, 0);
  EXPECT_EQ(summary->lost + summary->doubled + summary->violations, 0);
}

// The harness with another program in the place of one of its own. A run ends with the first thing
// that is wrong, which may be something else that the mistake leads to: then there is another one.
testing::AssertionResult IsFound(const char* own, const char* other,
                                 const std::function<bool(const Summary&)>& found) {
  if (std::getenv(other) == nullptr) return testing::AssertionFailure() << other << " is not set";
  const std::string before = std::getenv(own);
  setenv(own, std::getenv(other), 1);
  const absl::Cleanup restore = [&] { setenv(own, before.c_str(), 1); };
  Options options = OptionsOfEnvironment();
  options.cycles = 500;
  for (int runs = 0; runs < 4; ++runs, ++options.seed) {
    const absl::StatusOr<Summary> summary = snug::crash::Run(options);
    if (!summary.ok()) return testing::AssertionFailure() << summary.status();
    Report(*summary, options.cycles, 0);
    if (found(*summary)) return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "it is not found";
}

// It acknowledges a submit before the job is on the disk.
TEST(CrashControlTest, ALossIsFound) {
  EXPECT_TRUE(IsFound("SNUG_FAILING_DAEMON", "SNUG_FORGETFUL_DAEMON",
                      [](const Summary& summary) { return summary.lost > 0; }));
}

// It does not remember which request made a job.
TEST(CrashControlTest, ADoublingIsFound) {
  EXPECT_TRUE(IsFound("SNUG_FAILING_DAEMON", "SNUG_DOUBLING_DAEMON",
                      [](const Summary& summary) { return summary.doubled > 0; }));
}

// It goes on from a checkpoint's step without its weights.
TEST(CrashControlTest, WeightsOfOtherStepsAreFound) {
  EXPECT_TRUE(IsFound("SNUG_FAKE_WORKER", "SNUG_MISTAKEN_WORKER", [](const Summary& summary) {
    return absl::c_any_of(summary.what, [](const std::string& what) {
      return absl::StrContains(what, "are of other steps");
    });
  }));
}

}  // namespace
}  // namespace snug::crash
