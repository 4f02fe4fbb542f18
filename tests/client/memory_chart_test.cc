#include "client/memory_chart.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_server.h"

namespace snug::client {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

// A plan whose stash grows for two instants of forward and falls for two of backward, over 4 MiB of
// weights.
v1::PlanJobResponse Reply() {
  v1::PlanJobResponse reply;
  v1::Plan& keep = *reply.add_plans();
  keep.set_name("keep");
  keep.set_peak_bytes(16 * kMiB);
  v1::Plan& plan = *reply.add_plans();
  plan.set_name("recompute <all>");
  plan.set_peak_bytes(8 * kMiB);
  plan.mutable_memory()->set_weights_bytes(3 * kMiB);
  plan.mutable_memory()->set_adapter_bytes(kMiB);
  reply.set_chosen(1);
  for (const int64_t stash : {2, 4, 4, 0}) {
    v1::LiveBytes& live = *reply.add_timeline();
    live.set_stash_bytes(stash * kMiB);
    live.set_backward(reply.timeline_size() > 2);
  }
  reply.mutable_timeline(3)->set_scratch_bytes(2 * kMiB);
  return reply;
}

std::string Printed(const v1::PlanJobResponse& reply, int columns) {
  std::ostringstream out;
  PrintMemoryChart(MemoryChartOf(reply), {.columns = columns}, out);
  return out.str();
}

TEST(MemoryChartTest, LayersAreWhatTheChosenPlanHasOfThem) {
  const MemoryChart chart = MemoryChartOf(Reply());
  ASSERT_EQ(chart.layers.size(), 3u);  // No gradients, no workspace.
  EXPECT_EQ(chart.layers[0].name, "weights");
  EXPECT_EQ(chart.layers[0].bytes, std::vector<int64_t>(4, 4 * kMiB));
  EXPECT_EQ(chart.layers[1].name, "stash");
  EXPECT_EQ(chart.layers[1].peak_bytes, 4 * kMiB);
  EXPECT_EQ(chart.layers[2].name, "scratch");
  EXPECT_EQ(chart.peak_bytes, 8 * kMiB);
}

// Eight columns for each instant, sixteen rows for 8 MiB.
TEST(MemoryChartTest, ALetterIsHalfAMebibyte) {
  const std::string text = Printed(Reply(), 13 + 32);
  const std::string s(8, 'K'), two(16, 'K');
  EXPECT_THAT(text, HasSubstr("live bytes of a step under recompute <all>\n"));
  EXPECT_THAT(text, HasSubstr("     8 MiB |        " + two + "\n"));
  EXPECT_THAT(text, HasSubstr("           |" + s + two + "ssssssss\n"));
  EXPECT_THAT(text, HasSubstr("     4 MiB |" + std::string(32, 'W') + "\n"));
  EXPECT_THAT(text, HasSubstr(std::string(16, '>') + std::string(16, '<') + "\n"));
  EXPECT_THAT(text, HasSubstr("  K  stash      4 MiB\n  W  weights    4 MiB\n"));
}

// Forms lie over what is kept as it is, each in a layer of its own.
TEST(MemoryChartTest, TheStashIsDividedByKind) {
  v1::PlanJobResponse reply = Reply();
  for (const int i : {1, 2}) {
    v1::LiveBytes& live = *reply.mutable_timeline(i);
    (*live.mutable_form_bytes())["int8"] = kMiB;
    (*live.mutable_form_bytes())["two_bit"] = 2 * kMiB;
    live.set_host_bytes(5 * kMiB);
  }
  const MemoryChart chart = MemoryChartOf(reply);
  ASSERT_EQ(chart.layers.size(), 5u);
  EXPECT_EQ(chart.layers[1].name, "stash");
  EXPECT_EQ(chart.layers[1].bytes, (std::vector<int64_t>{2 * kMiB, kMiB, kMiB, 0}));
  EXPECT_EQ(chart.layers[2].name, "int8");
  EXPECT_EQ(chart.layers[2].bytes, (std::vector<int64_t>{0, kMiB, kMiB, 0}));
  EXPECT_EQ(chart.layers[3].name, "two_bit");
  EXPECT_EQ(chart.peak_bytes, 8 * kMiB);
  const std::string text = Printed(reply, 13 + 32);
  EXPECT_THAT(text, HasSubstr("  2  two_bit    2 MiB\n  8  int8       1 MiB\n"));
  EXPECT_THAT(text, HasSubstr("     offload    5 MiB, in the host's memory\n"));
}

// Where instants are more than columns, the highest of those under a column is shown.
TEST(MemoryChartTest, NoPeakIsLostInANarrowTerminal) {
  v1::PlanJobResponse reply = Reply();
  for (int i = 0; i < 500; ++i) *reply.add_timeline() = reply.timeline(3);
  reply.mutable_timeline(123)->set_stash_bytes(12 * kMiB);
  const std::string text = Printed(reply, 13 + 20);
  EXPECT_THAT(text, HasSubstr("    18 MiB |    s\n"));
}

TEST(MemoryChartTest, AJobThatFitsNowhereShowsItsSmallestPlan) {
  v1::PlanJobResponse reply = Reply();
  reply.set_chosen(-1);
  EXPECT_EQ(MemoryChartOf(reply).plan, "recompute <all>");
  reply.clear_timeline();
  EXPECT_EQ(Printed(reply, 80), "");
}

TEST(MemoryChartTest, TheSvgHasAnAreaForEachLayer) {
  const std::string svg = MemoryChartSvg(MemoryChartOf(Reply()));
  EXPECT_THAT(svg, HasSubstr("recompute &lt;all&gt;"));
  size_t areas = 0;
  for (size_t at = svg.find("<polygon"); at != std::string::npos; at = svg.find("<polygon", at + 1))
    ++areas;
  EXPECT_EQ(areas, 3u);
  // Weights: from the bottom to the middle, all along.
  EXPECT_THAT(svg, HasSubstr("points=\"90.0,190.0 620.0,190.0 620.0,340.0 90.0,340.0 \""));
  for (const char* word : {">weights<", ">stash<", ">scratch<", ">forward<", ">backward<", "8 MiB"})
    EXPECT_THAT(svg, HasSubstr(word));
}

TEST(MemoryChartTest, WithoutExplainTheTableIsAboveIt) {
  FakeServer server;
  server.plan = [](const v1::PlanJobRequest& request, v1::PlanJobResponse* reply) {
    if (request.with_timeline()) *reply = Reply();
    reply->set_length_source("prepared dataset");
    return grpc::Status::OK;
  };
  const std::string file =
      server.folder().Write("job.yaml", "model: ./m\ndataset: ./d\nmethod: lora\n");
  const std::string path = server.folder().path("plan.svg");
  EXPECT_EQ(server.Run({"plan", file, "--svg", path}).out, path + "\n");
  std::ifstream written(path);
  const std::string svg((std::istreambuf_iterator<char>(written)), {});
  for (const char* words : {">   PLAN  ", "class=\"table chosen\"", ">*  recompute &lt;all&gt;  ",
                            "<polygon", ">backward<"})
    EXPECT_THAT(svg, HasSubstr(words));
}

TEST(MemoryChartTest, TheCommandDrawsIt) {
  FakeServer server;
  v1::PlanJobRequest asked;
  server.plan = [&](const v1::PlanJobRequest& request, v1::PlanJobResponse* reply) {
    asked = request;
    *reply = Reply();
    reply->set_length_source("prepared dataset");
    return grpc::Status::OK;
  };
  const std::string file =
      server.folder().Write("job.yaml", "model: ./m\ndataset: ./d\nmethod: lora\n");
  const Ran ran = server.Run({"plan", file, "--explain"});
  EXPECT_TRUE(asked.with_timeline());
  EXPECT_THAT(ran.out, HasSubstr("> forward, < backward"));
  const std::string path = server.folder().path("plan.svg");
  EXPECT_EQ(server.Run({"plan", file, "--explain", "--svg", path}).out, path + "\n");
  std::ifstream svg(path);
  std::string first;
  std::getline(svg, first);
  EXPECT_THAT(first, HasSubstr("<svg xmlns="));
  EXPECT_EQ(server.Run({"plan", file, "--tape", "--svg", path}).code, 64);  // Of what?
  const Ran nowhere = server.Run({"plan", file, "--explain", "--svg", "/nowhere/plan.svg"});
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("cannot write /nowhere/plan.svg"));
}

}  // namespace
}  // namespace snug::client
