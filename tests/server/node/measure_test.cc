// The worker is a script of the test's own: it notes how it was called, and prints what the test
// has written down for it.
#include "server/node/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/server/testing/brackets.h"
#include "tests/server/testing/test_folder.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Device GpuDevice(int index, const std::string& model, const std::string& driver) {
  Device device{.name = absl::StrCat("gpu:", index)};
  device.gpu = {
      .index = index, .uuid = absl::StrCat("GPU-", index), .model = model, .driver = driver};
  return device;
}

class MeasureTest : public testing::Test {
 protected:
  MeasureTest() {
    WriteWorker("worker", R"({"context_bytes": 100, "products": "cpu way"})");
    WriteWorker("worker-cuda",
                R"({"context_bytes": 500, "unseen_bytes": 300, "products": "gpu way"})");
    // The daemon's own, which a worker of a GPU must not inherit.
    setenv("CUDA_VISIBLE_DEVICES", "7", 1);
    setenv("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps", 1);
  }

  void WriteWorker(const std::string& name, const std::string& answer, int exit_code = 0) {
    const std::string path = dir_ + "/" + name;
    WriteText(path, absl::StrCat(
                        "#!/bin/sh\necho \"", name, " $* $CUDA_VISIBLE_DEVICES",
                        " $CUDA_DEVICE_ORDER $CUDA_MODULE_LOADING $CUDA_MPS_PIPE_DIRECTORY\" >> ",
                        dir_, "/calls\necho '", answer, "'\nexit ", exit_code, "\n"));
    fs::permissions(path, fs::perms::owner_all);
  }
  absl::Status Measure(std::vector<Device>& devices) const {
    return MeasureDevices(
        {.worker = dir_ + "/worker", .worker_cuda = dir_ + "/worker-cuda", .state_dir = dir_},
        devices);
  }
  // Since the last time that this was asked.
  std::vector<std::string> Calls() const {
    std::vector<std::string> calls;
    if (fs::exists(dir_ + "/calls"))
      calls = absl::StrSplit(ReadText(dir_ + "/calls"), '\n', absl::SkipEmpty());
    fs::remove(dir_ + "/calls");
    return calls;
  }

  const TestFolder folder_{"measure"};
  const std::string dir_ = folder_.path();
};

// Of two GPUs that are alike one is measured, in the environment that workers get: the daemon's MPS
// reaches none, and a worker of the CPU is given no GPU of its own.
TEST_F(MeasureTest, EachKindOfDeviceOnce) {
  std::vector<Device> devices = {{.name = "cpu:0"},
                                 GpuDevice(0, "A100", "580"),
                                 GpuDevice(1, "A100", "580"),
                                 GpuDevice(2, "H200", "580")};
  ASSERT_TRUE(Measure(devices).ok());
  EXPECT_THAT(Calls(),
              ElementsAre("worker --measure-context 7   ",
                          "worker-cuda --measure-context gpu:0 GPU-0 PCI_BUS_ID LAZY /dev/null",
                          "worker-cuda --measure-context gpu:2 GPU-2 PCI_BUS_ID LAZY /dev/null"));
  EXPECT_EQ(devices[0].context_bytes, 100);
  EXPECT_EQ(devices[0].unseen_bytes, 0);
  EXPECT_EQ(devices[0].products, "cpu way");
  for (int gpu : {1, 2, 3}) {
    EXPECT_EQ(devices[static_cast<size_t>(gpu)].context_bytes, 500);
    EXPECT_EQ(devices[static_cast<size_t>(gpu)].unseen_bytes, 300);
    EXPECT_EQ(devices[static_cast<size_t>(gpu)].products, "gpu way");
  }
}

// Rates are remembered as they were: of a CPU all, of a GPU some. One that is none spoils them all.
TEST_F(MeasureTest, RatesAreReadAndRemembered) {
  const auto rates = [](const std::string& first, const std::string& last) {
    return absl::StrCat(R"({"products": )", first,
                        R"(, "narrow_products": 2e10, "attention": 3e10, "matrices": 4e9, )",
                        R"("passes": 1.5e10, "to_host": 5e9, "from_host": 6e9, "runs": )", last,
                        "}");
  };
  const auto both = [](const std::string& fp32, const std::string& bf16) {
    return absl::StrCat(R"({"fp32": )", fp32, R"(, "bf16": )", bf16, "}");
  };
  WriteWorker("worker", absl::StrCat(R"({"context_bytes": 100, "rates": )",
                                     both(rates("123456e6", "1e5"), rates("3e11", "2e5")), "}"));
  const std::string some = R"({"to_host": 5e10, "runs": 1.5e5})";
  WriteWorker("worker-cuda", absl::StrCat(R"({"context_bytes": 500, "rates": {"fp32": )", some,
                                          R"(, "bf16": )", some, R"(, "head_rows": 2048}})"));
  for (int start = 0; start < 2; ++start) {
    std::vector<Device> devices = {{.name = "cpu:0"}, GpuDevice(0, "H200", "580")};
    ASSERT_TRUE(Measure(devices).ok());
    ASSERT_TRUE(devices[0].rates.has_value());
    EXPECT_THAT(devices[0].rates->f32.per_second,
                ElementsAre(123456e6, 2e10, 3e10, 4e9, 1.5e10, 5e9, 6e9, 1e5));
    EXPECT_THAT(devices[0].rates->bf16.per_second,
                ElementsAre(3e11, 2e10, 3e10, 4e9, 1.5e10, 5e9, 6e9, 2e5));
    ASSERT_TRUE(devices[1].rates.has_value());
    EXPECT_THAT(devices[1].rates->bf16.per_second, ElementsAre(0, 0, 0, 0, 0, 5e10, 0, 1.5e5));
    EXPECT_EQ(devices[0].rates->head_rows, 0);
    EXPECT_EQ(devices[1].rates->head_rows, 2048);
    EXPECT_EQ(Calls().size(), start == 0 ? 2u : 0u);
  }
  for (const std::string& bad :
       {both(rates("1", "1"), "7"), std::string(R"("fast")"),
        both(rates("1", "1"), rates("1", "0")), both(rates("\"1\"", "1"), rates("1", "1")),
        both(rates("1", "1"), rates("1", "1") + R"(, "head_rows": 2000)"),
        both(rates("1", "1"), rates("1", "1") + R"(, "head_rows": "2048")")}) {
    fs::remove(dir_ + "/context.json");
    WriteWorker("worker", absl::StrCat(R"({"context_bytes": 100, "rates": )", bad, "}"));
    std::vector<Device> devices = {{.name = "cpu:0"}};
    ASSERT_TRUE(Measure(devices).ok());
    EXPECT_FALSE(devices[0].rates.has_value()) << bad;
  }
}

// A restart that changes nothing measures nothing, whichever device has which number.
TEST_F(MeasureTest, WhatIsKnownIsNotMeasuredAgain) {
  std::vector<Device> devices = {{.name = "cpu:0"}, GpuDevice(0, "A100", "580")};
  ASSERT_TRUE(Measure(devices).ok());
  Calls();
  std::vector<Device> again = {GpuDevice(3, "A100", "580"), {.name = "cpu:0"}};
  ASSERT_TRUE(Measure(again).ok());
  EXPECT_THAT(Calls(), IsEmpty());
  EXPECT_EQ(again[0].context_bytes, 500);
  EXPECT_EQ(again[0].unseen_bytes, 300);
  EXPECT_EQ(again[0].products, "gpu way");
  EXPECT_EQ(again[1].context_bytes, 100);
}

// Another driver, another model, another worker: each is measured, and of the others nothing is
// forgotten.
TEST_F(MeasureTest, WhatHasChangedIsMeasuredAgain) {
  std::vector<Device> devices = {{.name = "cpu:0"}, GpuDevice(0, "A100", "580")};
  ASSERT_TRUE(Measure(devices).ok());
  Calls();
  devices = {{.name = "cpu:0"}, GpuDevice(0, "A100", "590")};
  ASSERT_TRUE(Measure(devices).ok());
  EXPECT_EQ(Calls().size(), 1u);
  devices = {GpuDevice(0, "H200", "590")};
  ASSERT_TRUE(Measure(devices).ok());
  EXPECT_EQ(Calls().size(), 1u);
  devices = {{.name = "cpu:0"}, GpuDevice(0, "A100", "580"), GpuDevice(1, "A100", "590")};
  ASSERT_TRUE(Measure(devices).ok());
  EXPECT_THAT(Calls(), IsEmpty());
  WriteWorker("worker-cuda", R"({"context_bytes": 600, "products": "a new way"})");
  ASSERT_TRUE(Measure(devices).ok());
  EXPECT_EQ(Calls().size(), 2u);
  EXPECT_EQ(devices[1].context_bytes, 600);
  EXPECT_EQ(devices[0].context_bytes, 100);
}

// A file of an older version, or of nobody, is no reason to stop.
TEST_F(MeasureTest, AFileThatCannotBeReadIsMeasuredAgain) {
  for (const char* text : {"{\"worker\": \"x\", \"context_bytes\": 7}", "{\"facts\": [3]}",
                           "{\"facts\": 3}", "not json", ""}) {
    WriteText(dir_ + "/context.json", text);
    std::vector<Device> devices = {{.name = "cpu:0"}};
    ASSERT_TRUE(Measure(devices).ok()) << text;
    EXPECT_EQ(Calls().size(), 1u) << text;
    EXPECT_EQ(devices[0].context_bytes, 100);
  }
}

// What a worker prints, and what lies in the place of what one has printed.
TEST_F(MeasureTest, BracketsWithoutEndAreNoFacts) {
  std::vector<Device> devices = {{.name = "cpu:0"}};
  WriteBrackets(dir_ + "/context.json");
  ASSERT_TRUE(Measure(devices).ok());
  EXPECT_EQ(devices[0].context_bytes, 100);
  WriteText(dir_ + "/context.json", absl::StrCat(R"({"facts": )", Nested(60'000), "}"));
  ASSERT_TRUE(Measure(devices).ok());
  fs::remove(dir_ + "/context.json");
  for (const std::string& facts : {std::string("[["), Nested(60'000)}) {
    WriteWorker("worker", absl::StrCat(R"({"context_bytes": 100, "rates": )", facts, "}"));
    const absl::Status status = Measure(devices);
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--measure-context failed"));
  }
}

TEST_F(MeasureTest, AGpuNeedsAWorkerThatIsBuiltWithCuda) {
  fs::remove(dir_ + "/worker-cuda");
  std::vector<Device> devices = {{.name = "cpu:0"}, GpuDevice(1, "A100", "580")};
  const absl::Status status = Measure(devices);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(status.message(),
            absl::StrCat("worker_cuda: gpu:1 needs a worker that is built with CUDA "
                         "(SNUG_CUDA=ON), and there is no ",
                         dir_, "/worker-cuda"));
  devices.pop_back();
  EXPECT_TRUE(Measure(devices).ok());
}

TEST_F(MeasureTest, AWorkerThatFailsIsNamedWithItsDevice) {
  WriteWorker("worker-cuda", "{}", 3);
  std::vector<Device> devices = {GpuDevice(0, "A100", "580")};
  EXPECT_THAT(
      std::string(Measure(devices).message()),
      HasSubstr(absl::StrCat("gpu:0: ", dir_, "/worker-cuda --measure-context failed (exit 3")));
  WriteWorker("worker-cuda", "{}");  // Ends well and says nothing.
  EXPECT_FALSE(Measure(devices).ok());
}

// There is nothing to measure it with; what is remembered of one like it holds.
TEST_F(MeasureTest, AGpuInTroubleIsNotMeasured) {
  std::vector<Device> devices = {GpuDevice(0, "A100", "580")};
  devices[0].gpu.trouble = absl::UnavailableError("the driver is not loaded");
  ASSERT_TRUE(Measure(devices).ok());
  EXPECT_THAT(Calls(), IsEmpty());
  EXPECT_EQ(devices[0].context_bytes, 0);
  std::vector<Device> well = {GpuDevice(0, "A100", "580")};
  ASSERT_TRUE(Measure(well).ok());
  ASSERT_TRUE(Measure(devices).ok());
  EXPECT_EQ(devices[0].context_bytes, 500);
}

}  // namespace
}  // namespace snug::server
