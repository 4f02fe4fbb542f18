// One file or several with an index: the same tensors, to the byte.
#include "worker/checkpoint/model_shards.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/checkpoint/testbed.h"
#include "worker/checkpoint/read_file.h"
#include "worker/program/files/safetensors.h"

namespace snug::checkpoint {
namespace {

using ::testing::HasSubstr;

// Each tensor in two pieces.
absl::Status InPieces(const TensorBytes& tensor, const TensorSink& sink) {
  const int64_t half = tensor.bytes / 8 * 4;
  const absl::Status first = sink(tensor.data, half);
  if (!first.ok()) return first;
  return sink(static_cast<char*>(tensor.data) + half, tensor.bytes - half);
}

Tensors ThreeTensors() {
  Tensors tensors;
  tensors.AddNumbered("a", {4, 16}, 1.0f);
  tensors.AddBf16("b", {3}, {0x3f80, 0x4000, 0x4040});
  tensors.AddNumbered("c", {10, 10}, 5.0f);
  return tensors;
}

void ExpectSame(const Tensors& tensors, const std::string& folder, size_t files) {
  const auto index = program::ReadModelIndex(folder);
  SNUG_ASSERT_OK(index);
  ASSERT_EQ(index->size(), tensors.list().size());
  std::set<std::string> named;
  for (size_t i = 0; i < tensors.list().size(); ++i) {
    const program::TensorEntry& entry = index->at(tensors.list()[i].key);
    named.insert(entry.file);
    EXPECT_EQ(entry.dtype, tensors.list()[i].dtype);
    EXPECT_EQ(ReadText(entry.file)
                  .substr(static_cast<size_t>(entry.begin), static_cast<size_t>(entry.bytes)),
              tensors.bytes(i));
  }
  EXPECT_EQ(named.size(), files);
}

TEST(ModelShardsTest, WhatFitsIsOneFile) {
  const TempFolder folder;
  const Tensors tensors = ThreeTensors();
  SNUG_ASSERT_OK(WriteModelShards(folder.path(), tensors.list(), InPieces));
  EXPECT_FALSE(std::filesystem::exists(folder / "model.safetensors.index.json"));
  ExpectSame(tensors, folder.path(), 1);
}

TEST(ModelShardsTest, MoreIsSeveralWithAnIndex) {
  const TempFolder folder;
  const Tensors tensors = ThreeTensors();
  SNUG_ASSERT_OK(WriteModelShards(folder.path(), tensors.list(), InPieces, 300));
  EXPECT_TRUE(std::filesystem::exists(folder / "model-00002-of-00002.safetensors"));
  ExpectSame(tensors, folder.path(), 2);
  EXPECT_THAT(ReadText(folder / "model.safetensors.index.json"), HasSubstr("\"total_size\": 662"));
}

TEST(ModelShardsTest, AValueThatIsNotFiniteIsNotWritten) {
  const TempFolder folder;
  Tensors tensors;
  tensors.AddF32("a", {2}, {1.0f, NAN});
  const absl::Status status = WriteModelShards(folder.path(), tensors.list(), InPieces);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a has a value that is NaN"));
}

}  // namespace
}  // namespace snug::checkpoint
