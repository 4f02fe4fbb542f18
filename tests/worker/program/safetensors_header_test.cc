#include "worker/program/files/safetensors_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace snug::program {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Refusal(const std::string& header) {
  return std::string(ParseSafetensorsHeader(header, "x.safetensors").status().message());
}

// One tensor "a" with these members.
std::string One(const std::string& members) { return R"({"a":{)" + members + "}}"; }

TEST(SafetensorsHeaderTest, ReadsTensorsInAnyOrderAndPadding) {
  const absl::StatusOr<HeaderTensors> tensors = ParseSafetensorsHeader(
      R"({"b":{"data_offsets":[8,8],"shape":[0,3],"dtype":"BF16"},
          "__metadata__":{"format":"pt"},
          "a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
          "scalar":{"dtype":"I64","shape":[],"data_offsets":[8,16]},
          "half":{"dtype":"F4","shape":[4],"data_offsets":[16,18]}}   )",
      "x");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 4u);
  EXPECT_EQ(tensors->at("a").dtype, "F32");
  EXPECT_THAT(tensors->at("a").shape, ElementsAre(2));
  EXPECT_THAT(tensors->at("b").shape, ElementsAre(0, 3));
  EXPECT_THAT(tensors->at("scalar").shape, IsEmpty());
  EXPECT_EQ(tensors->at("scalar").begin, 8);
  EXPECT_EQ(tensors->at("scalar").end, 16);
}

TEST(SafetensorsHeaderTest, AHeaderMayHaveNoTensors) {
  EXPECT_TRUE(ParseSafetensorsHeader("{}", "x").ok());
  EXPECT_TRUE(ParseSafetensorsHeader(R"({"__metadata__":{}})", "x").ok());
}

struct BadHeader {
  std::string header;
  std::string said;
};

// Members of a good tensor.
const std::string dtype = R"("dtype":"F32")";
const std::string shape = R"("shape":[2])";
const std::string offsets = R"("data_offsets":[0,8])";
const std::string good = dtype + "," + shape + "," + offsets;

// F-46: each in no time, however large it is, and in little memory.
void ExpectRefused(const std::vector<BadHeader>& cases) {
  rusage before = {}, after = {};
  getrusage(RUSAGE_SELF, &before);
  for (const BadHeader& bad : cases) {
    const absl::Time begin = absl::Now();
    EXPECT_THAT(Refusal(bad.header), HasSubstr(bad.said)) << bad.header.substr(0, 200);
    EXPECT_LT(absl::Now() - begin, absl::Milliseconds(100)) << bad.header.substr(0, 200);
  }
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 << 10);  // KiB.
}

// F-46
TEST(SafetensorsHeaderTest, RefusesWhatTheFormatDoesNotHave) {
  const std::vector<BadHeader> cases = {
      {"", "the header is not { ... }"},
      {" {}", "the header is not { ... }"},
      {"{}\n", "the header is not { ... }"},
      {std::string("{}\0", 3), "the header is not { ... }"},
      {"{}x", "the header is not { ... }"},
      {"{} {}", "parse error"},
      {"[]", "the header is not { ... }"},
      {"{\"a\":}", "parse error"},
      {One(good) + One(good), "parse error"},
      {"{\"\xff\":{" + good + "}}", "ill-formed UTF-8"},
      {"{\"\\ud800\":{" + good + "}}", "surrogate"},
      {R"({"a":1})", "the number 1 where the format has none"},
      {R"({"a":null})", "null where the format has none"},
      {R"({"a":"F32"})", "the text \"F32\" where"},
      {R"({"a":[]})", "a list where"},
      {R"({"a":true})", "a boolean where"},
      {"{\"a\":{" + good + "},\"a\":{" + good + "}}", "\"a\": is there twice"},
      {"{\"a\":{" + good + "},\"\\u0061\":{" + good + "}}", "\"a\": is there twice"},
      {One(good + "," + dtype), "\"a\": \"dtype\" is there twice"},
      {One(good + "," + shape), "\"a\": \"shape\" is there twice"},
      {One(good + R"(,"strides":[1])"), "has \"strides\"; accepted: dtype, shape, data_offsets"},
      {One(shape + "," + offsets), "\"a\": has no dtype"},
      {One(dtype + "," + offsets), "\"a\": has no shape"},
      {One(dtype + "," + shape), "\"a\": has no data_offsets"},
      {One(R"("dtype":"f32",)" + shape + "," + offsets), "dtype \"f32\" is not one of"},
      {One(R"("dtype":"I4",)" + shape + "," + offsets), "dtype \"I4\" is not one of"},
      {One(R"("dtype":32,)" + shape + "," + offsets), "the number 32 where"},
      {One(R"("dtype":["F32"],)" + shape + "," + offsets), "a list where"},
      {One(R"("dtype":{},)" + shape + "," + offsets), "an object where"},
  };
  ExpectRefused(cases);
}

// F-46
TEST(SafetensorsHeaderTest, RefusesShapesThatAreNone) {
  const std::vector<BadHeader> cases = {
      {One(dtype + R"(,"shape":2,)" + offsets), "the number 2 where the format has none, in \"sha"},
      {One(dtype + R"(,"shape":"2",)" + offsets), "the text \"2\" where"},
      {One(dtype + R"(,"shape":[2.0],)" + offsets), "the number 2.0 where"},
      {One(dtype + R"(,"shape":[2e0],)" + offsets), "the number 2e0 where"},
      {One(dtype + R"(,"shape":[-2],)" + offsets), "the number -2 where"},
      {One(dtype + R"(,"shape":[-0],)" + offsets), "the number -0 where"},
      {One(dtype + R"(,"shape":[02],)" + offsets), "parse error"},
      {One(dtype + R"(,"shape":[+2],)" + offsets), "parse error"},
      {One(dtype + R"(,"shape":[null],)" + offsets), "null where"},
      {One(dtype + R"(,"shape":[[2]],)" + offsets), "a list where"},
      {One(dtype + R"(,"shape":[{}],)" + offsets), "an object where"},
      {One(dtype + R"(,"shape":[1,1,1,1,1,1,1,1,2],)" + offsets), "shape has more than 8 numbers"},
      {One(dtype + R"(,"shape":[281474976710657],)" + offsets), "shape has 281474976710657; at mo"},
      {One(dtype + R"(,"shape":[18446744073709551616],)" + offsets), "the number 184467440737095"},
      {One(dtype + R"(,"shape":[1e400],)" + offsets), "\"a\": number overflow"},
      {One(dtype + R"(,"shape":[281474976710656,281474976710656],)" + offsets), "more than 2^63"},
      // 2^64 bits in all: wraps to nothing when nobody looks.
      {One(dtype + R"(,"shape":[268435456,2147483648],"data_offsets":[0,0])"), "more than 2^63"},
      {One(dtype + R"(,"shape":[281474976710656,281474976710656,0],)" + offsets), "than 2^63 bits"},
      {One(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])"), "F4 [3] does not fill whole bytes"},
      {One(R"("dtype":"F6_E2M3","shape":[2],"data_offsets":[0,1])"), "does not fill whole bytes"},
  };
  ExpectRefused(cases);
}

// F-46
TEST(SafetensorsHeaderTest, RefusesOffsetsAndMetadataThatAreNone) {
  const std::vector<BadHeader> cases = {
      {One(dtype + "," + shape + R"(,"data_offsets":[8])"), "data_offsets are not two numbers"},
      {One(dtype + "," + shape + R"(,"data_offsets":[])"), "data_offsets are not two numbers"},
      {One(dtype + "," + shape + R"(,"data_offsets":[0,8,8])"), "data_offsets has more than 2"},
      {One(dtype + "," + shape + R"(,"data_offsets":[8,0])"), "F32 [2] has 8 bytes, but data_offs"},
      {One(dtype + "," + shape + R"(,"data_offsets":[0,7])"), "but data_offsets [0, 7]"},
      {One(dtype + "," + shape + R"(,"data_offsets":[0,9])"), "but data_offsets [0, 9]"},
      {One(dtype + "," + shape + R"(,"data_offsets":[-8,0])"), "the number -8 where"},
      {One(dtype + "," + shape + R"(,"data_offsets":{"0":0})"), "an object where"},
      {R"({"__metadata__":[]})", "\"__metadata__\": a list where"},
      {R"({"__metadata__":"pt"})", "\"__metadata__\": the text"},
      {R"({"__metadata__":{"a":1}})", "\"__metadata__\": the number 1 where the format has none"},
      {R"({"__metadata__":{"a":{"b":"c"}}})", "\"__metadata__\": an object where"},
      {R"({"__metadata__":{"a":["c"]}})", "\"__metadata__\": a list where"},
      {R"({"__metadata__":{"a":"b","a":"c"}})", "\"__metadata__\": \"a\" is there twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", "\"__metadata__\": is there twice"},
      {R"({"__metadata__":{"a":")" + std::string(1'000'001, 'x') + "\"}}", "more than 1000000 byt"},
      {R"({"__metadata__":{")" + std::string(1'000'001, 'x') + "\":\"\"}}",
       "more than 1000000 byte"},
      {"{\"" + std::string(513, 'n') + "\":{" + good + "}}", "a name of 513 bytes; at most 512"},
      {"{\"a\":" + std::string(1'000'000, '[') + "}", "a list where"},
      {"{\"a\":{\"dtype\":" + std::string(100'000, '{') + "}", "an object where"},
  };
  ExpectRefused(cases);
}

TEST(SafetensorsHeaderTest, NamesOfTheGreatestLengthPass) {
  const std::string members = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  EXPECT_EQ(Refusal("{\"" + std::string(512, 'n') + "\":{" + members + "}}"), "");
}

// F-46
TEST(SafetensorsHeaderTest, CountsTensors) {
  std::string header = "{";
  for (int i = 0; i < 200'000; ++i) {
    header += "\"" + std::to_string(i) + R"(":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)";
  }
  std::string full = header;
  full.back() = '}';
  EXPECT_EQ(Refusal(full), "");
  EXPECT_THAT(Refusal(header + R"("one":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})"),
              HasSubstr("\"one\": one tensor too many; at most 200000"));
}

HeaderTensors Places(const std::vector<std::pair<int64_t, int64_t>>& places) {
  HeaderTensors tensors;
  for (const auto& [begin, end] : places) {
    HeaderTensor tensor;
    tensor.begin = begin;
    tensor.end = end;
    tensors[std::string(1, static_cast<char>('z' - tensors.size()))] = tensor;
  }
  return tensors;
}

std::string Layout(const std::vector<std::pair<int64_t, int64_t>>& places, int64_t bytes) {
  return std::string(CheckSafetensorsLayout(Places(places), bytes, "x").message());
}

// Names run against the order of the places: z, y, x ...
TEST(SafetensorsHeaderTest, TensorsFillTheDataExactly) {
  EXPECT_EQ(Layout({}, 0), "");
  EXPECT_EQ(Layout({{0, 8}, {8, 8}, {8, 12}}, 12), "");
  EXPECT_EQ(Layout({{8, 12}, {0, 8}}, 12), "");
  EXPECT_THAT(Layout({{0, 8}, {4, 12}}, 12), HasSubstr("\"y\" begins at byte 4, inside"));
  EXPECT_THAT(Layout({{0, 8}, {0, 8}}, 8), HasSubstr("inside the tensor before it"));
  EXPECT_THAT(Layout({{0, 8}, {4, 4}}, 8), HasSubstr("inside the tensor before it"));
  EXPECT_THAT(Layout({{0, 8}, {9, 12}}, 12), HasSubstr("\"y\" begins at byte 9, behind a gap"));
  EXPECT_THAT(Layout({{4, 8}}, 8), HasSubstr("behind a gap"));
  EXPECT_THAT(Layout({{0, 8}}, 9), HasSubstr("take 8 bytes, the file has 9"));
  EXPECT_THAT(Layout({{0, 8}}, 7), HasSubstr("take 8 bytes, the file has 7"));
  EXPECT_THAT(Layout({}, 1), HasSubstr("take 0 bytes, the file has 1"));
}

}  // namespace
}  // namespace snug::program
