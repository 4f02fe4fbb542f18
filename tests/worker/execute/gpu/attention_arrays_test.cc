// What attention reads beside its operands: where documents begin and how long they are. On a GPU
// all blocks of a step share the batch's arrays, so that a run of the op copies nothing from the
// host, which it would have to wait for. Results against the CPU's.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/worker/execute/gpu/emulated_runtime.h"
#include "tests/worker/execute/gpu/test_gpu.h"
#include "tests/worker/execute/toy_run.h"
#include "worker/program/op_table.h"

namespace snug::execute {
namespace {

using program::Direction;
using program::DType;
using program::Rows;

constexpr int64_t kHeads = 2, kHeadWidth = 8, kWidth = kHeads * kHeadWidth, kCapacity = 6;
constexpr auto kAttention = static_cast<size_t>(program::OpCode::kAttention);

// Runs attention on a device, from slices of what is declared.
class Attention {
 public:
  Attention(Device& device, Rows key_rows) : device_(device) {
    op_.code = program::OpCode::kAttention;
    op_.name = "attention";
    op_.attributes = {.heads = kHeads,
                      .kv_heads = kHeads,
                      .head_width = kHeadWidth,
                      .scale = 0.4,
                      .causal = key_rows == Rows::kTokens,
                      .key_rows = key_rows};
    run_.op = &op_;
    run_.batch = &batch_;
    run_.device = &device_;
  }

  // The queries and keys of so many documents.
  void UseTokens(const std::vector<int64_t>& offsets) {
    offsets_ = offsets;
    batch_.tokens = offsets.back();
    batch_.documents = static_cast<int64_t>(offsets.size()) - 1;
    batch_.offsets = offsets_.data();
    batch_.device_offsets = Upload(offsets);
  }
  void UseSources(const std::vector<int64_t>& offsets) {
    source_offsets_ = offsets;
    std::vector<int64_t> counts;
    for (size_t d = 1; d < offsets.size(); ++d) counts.push_back(offsets[d] - offsets[d - 1]);
    batch_.source_tokens = offsets.back();
    batch_.source_offsets = source_offsets_.data();
    batch_.device_source_offsets = Upload(offsets);
    batch_.device_source_counts = Upload(counts);
  }
  void UseCache(const KvCache* cache) { batch_.kv_cache = cache; }
  void UseOperands(int64_t queries, int64_t keys) {
    run_.in = {Normal(queries, kWidth), Normal(keys, kWidth), Normal(keys, kWidth)};
    run_.out = {Normal(queries, kWidth), Normal(queries, kHeads)};
    run_.d_out[0] = Normal(queries, kWidth);
    run_.d_in = {Normal(queries, kWidth), Normal(keys, kWidth), Normal(keys, kWidth)};
  }

  std::vector<float> Forward() {
    Run(Direction::kForward, OpFunctionsOfKernels()[kAttention].forward);
    return Download(run_.out[0]);
  }
  // dq, dk and dv, one behind another.
  std::vector<float> Backward() {
    Run(Direction::kBackward, OpFunctionsOfKernels()[kAttention].backward);
    std::vector<float> all;
    for (const View& d_in : run_.d_in) {
      const std::vector<float> one = Download(d_in);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  const int64_t* Upload(const std::vector<int64_t>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(int64_t));
    buffers_.push_back(*DeviceBuffer::Allocate(device_, bytes));
    device_.Copy(buffers_.back().data(), values.data(), bytes, 0);
    return reinterpret_cast<const int64_t*>(buffers_.back().data());
  }
  // The same numbers on every device.
  View Normal(int64_t rows, int64_t width) {
    buffers_.push_back(*DeviceBuffer::Allocate(device_, rows * width * 4));
    const View view = {buffers_.back().data(), rows, width, DType::kF32};
    std::vector<float> values(static_cast<size_t>(view.elements()));
    for (float& x : values) x = std::normal_distribution<float>()(random_);
    device_.Copy(view.data, values.data(), view.bytes(), 0);
    return view;
  }

  int64_t copied = 0;  // By runs of the op, from the host or to it.

 private:
  int64_t HostCopies() const {
    auto* const gpu = dynamic_cast<GpuDevice*>(&device_);
    return gpu == nullptr ? 0 : static_cast<EmulatedRuntime&>(gpu->runtime()).host_copies();
  }
  void Run(Direction direction, void (*function)(const OpRun&)) {
    const program::RunShape shape{.op = &op_,
                                  .direction = direction,
                                  .key = {.tokens = batch_.tokens,
                                          .documents = batch_.documents,
                                          .longest_document = kCapacity,
                                          .source_tokens = batch_.source_tokens,
                                          .longest_source = kCapacity}};
    const int64_t declared = program::WorkspaceBytes(shape, device_.machine());
    const DeviceBuffer slice = *DeviceBuffer::Allocate(device_, declared);
    const int64_t before = HostCopies();
    device_.allocator().OpenSlice({.base = slice.data(), .bytes = declared, .op = "attention"});
    function(run_);
    device_.allocator().CloseSlice();
    copied += HostCopies() - before;
    EXPECT_TRUE(device_.Synchronize().ok());
  }
  std::vector<float> Download(const View& view) {
    std::vector<float> values(static_cast<size_t>(view.elements()));
    device_.Copy(values.data(), view.data, view.bytes(), 0);
    return values;
  }

  Device& device_;
  std::mt19937 random_{1};
  std::vector<DeviceBuffer> buffers_;
  std::vector<int64_t> offsets_, source_offsets_;
  program::Op op_;
  Batch batch_;
  OpRun run_;
};

void ExpectNear(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << i;
}

// A decoder's documents read sources of other lengths.
TEST(AttentionArraysTest, LengthsOfSourcesAreTheBatchs) {
  const auto gpu = OpenTestGpu();
  Attention here(TestDevice(), Rows::kSource), there(*gpu, Rows::kSource);
  for (Attention* attention : {&here, &there}) {
    attention->UseTokens({0, 3, 5, 6});
    attention->UseSources({0, 5, 6, 9});
    attention->UseOperands(6, 9);
  }
  ExpectNear(there.Forward(), here.Forward());
  ExpectNear(there.Backward(), here.Backward());
  EXPECT_EQ(there.copied, 0);
}

TEST(AttentionArraysTest, DocumentsAreTheBatchs) {
  const auto gpu = OpenTestGpu();
  Attention here(TestDevice(), Rows::kTokens), there(*gpu, Rows::kTokens);
  for (Attention* attention : {&here, &there}) {
    attention->UseTokens({0, 3, 5, 6});
    attention->UseOperands(6, 6);
  }
  ExpectNear(there.Forward(), here.Forward());
  ExpectNear(there.Backward(), here.Backward());
  EXPECT_EQ(there.copied, 0);
}

// Keys of two documents that grow, and that the GPU alone appends to.
TEST(AttentionArraysTest, ACacheStaysOnTheGpu) {
  const auto gpu = OpenTestGpu();
  Attention here(TestDevice(), Rows::kTokens), there(*gpu, Rows::kTokens);
  std::vector<std::vector<float>> results[2];
  int64_t copied[2];
  for (const auto& [attention, d] : {std::pair{&here, 0}, {&there, 1}}) {
    void* const keys = attention->Normal(2 * kCapacity, kWidth).data;
    void* const values = attention->Normal(2 * kCapacity, kWidth).data;
    std::vector<int64_t> rows = {0, 0};
    for (const std::vector<int64_t>& offsets :
         std::vector<std::vector<int64_t>>{{0, 3, 5}, {0, 1, 2}, {0, 0, 1}}) {
      const std::vector<int64_t> counts = {rows[0] + offsets[1], rows[1] + offsets[2] - offsets[1]};
      const KvCache cache = {.keys = &keys,
                             .values = &values,
                             .capacity = kCapacity,
                             .rows = rows.data(),
                             .device_begins = attention->Upload({0, kCapacity}),
                             .device_counts = attention->Upload(counts)};
      attention->UseTokens(offsets);
      attention->UseOperands(offsets.back(), offsets.back());
      attention->UseCache(&cache);
      results[d].push_back(attention->Forward());
      rows = counts;
    }
    copied[d] = attention->copied;
  }
  for (size_t step = 0; step < results[0].size(); ++step)
    ExpectNear(results[1][step], results[0][step]);
  EXPECT_EQ(copied[1], 0);
}

}  // namespace
}  // namespace snug::execute
