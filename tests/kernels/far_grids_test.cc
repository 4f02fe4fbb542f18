// How CUDA kernels divide their work past 2^31 elements, blocks and rows: the functions of
// kernels/cuda that do it, called as host code (the emulation's threads are places that a test may
// take), so that nobody runs 2^31 blocks. That kernels stride over rows in 64 bits is
// far_rows_test's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/frozen_weight.cuh"
#include "kernels/cuda/team.cuh"
#include "kernels/cuda/tensor_list.cuh"
#include "tests/cuda_on_cpu/emulator.h"
#include "tests/kernels/device.h"

namespace snug::kernels::cuda {
namespace {

constexpr int64_t kFar = int64_t{1} << 31;

// From here on this is that thread.
void Become(int64_t thread, int64_t block, Grid grid) {
  const auto index = [](int64_t x) { return cuda_on_cpu::Index3{static_cast<unsigned>(x), 0, 0}; };
  const auto size = [](int64_t x) { return cuda_on_cpu::Index3{static_cast<unsigned>(x), 1, 1}; };
  cuda_on_cpu::here = {index(thread), index(block), size(grid.threads), size(grid.blocks)};
}

// Each element has a block and a thread that gets it, once.
TEST(FarGridsTest, EveryElementHasItsThread) {
  constexpr int64_t kShapes[][2] = {{1, kFar + 7},      {kFar + 7, 1},
                                    {3, 4 * kFar + 1},  {4 * kFar + 1, 3},
                                    {1 << 20, 1 << 20}, {1 << 20, (1 << 20) + 1}};
  for (const auto& [N, packs] : kShapes) {
    const ElementGrid grid = ElementGridOf(N, packs);
    const int64_t launched = std::min(grid.blocks, kMaxBlocks),
                  wide = int64_t{1} << grid.across_bits;
    ASSERT_EQ(wide * grid.down, kMaxBlock);
    for (int64_t row : {int64_t{0}, N / 2, N - 1}) {
      for (int64_t pack : {int64_t{0}, packs / 3, packs - 1}) {
        SCOPED_TRACE(testing::Message() << row << ", " << pack << " of " << N << ", " << packs);
        const int64_t blocks_of_row = (packs + wide - 1) / wide;
        const int64_t block = row / grid.down * blocks_of_row + pack / wide;
        Become(row % grid.down * wide + pack % wide, block % launched, {launched, kMaxBlock});
        int64_t found = 0, others = 0;
        ForElements(grid, [&](int64_t i, int64_t c) {
          EXPECT_TRUE(i >= 0 && i < N && c >= 0 && c < packs) << i << ", " << c;
          (i == row && c == pack ? found : others) += 1;
        });
        EXPECT_EQ(found, 1);
        EXPECT_LE(others, grid.blocks / launched);
      }
    }
  }
}

void Nothing() {}

// The error is the launch's alone: the next one who asks CUDA for its last error finds none.
TEST(FarGridsTest, RefusedLaunchLeavesNoError) {
  const Error error = Launch(&Nothing, {1, 2048}, TestStream());
  EXPECT_EQ(error.code, ErrorCode::kLaunchFailed);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  cuda_on_cpu::TakeLastReport();
  // The runtime itself does leave it.
  cudaLaunchConfig_t config = {};
  config.blockDim = dim3(2048);
  EXPECT_NE(cudaLaunchKernelEx(&config, &Nothing), cudaSuccess);
  EXPECT_NE(cudaGetLastError(), cudaSuccess);
  cuda_on_cpu::TakeLastReport();
}

TEST(FarGridsTest, RowsAreATeams) {
  const Grid grid = {kMaxBlocks, kMaxBlock};
  Become(0, kMaxBlocks - 1, grid);
  EXPECT_EQ(Team<true>().row, kMaxBlocks - 1);
  EXPECT_EQ(Team<true>().rows_apart, kMaxBlocks);
  Become(kMaxBlock - 1, kMaxBlocks - 1, grid);
  constexpr int64_t kWarps = kMaxBlock / kWarp;
  EXPECT_EQ(Team<false>().row, kMaxBlocks * kWarps - 1);
  EXPECT_EQ(Team<false>().rows_apart, kMaxBlocks * kWarps);
  // A row of more than 2^31 packs: the last is the team's, once.
  Become(5, 0, {1, kMaxBlock});
  Team<true> team;
  team.threads = 1 << 20;  // So that few steps do.
  const int64_t packs = 2 * kFar + 6;
  std::vector<int64_t> got;
  ForPacks(team, packs, [&](int, int64_t pack) { got.push_back(pack); });
  EXPECT_EQ(got.size(), 4097u);
  EXPECT_EQ(got.back(), packs - 1);
}

struct Flat {
  int64_t n, id;
};

TEST(FarGridsTest, SpansAreEveryElementOnce) {
  constexpr Flat kTensors[] = {{7, 0}, {0, 1}, {4 * kFar + 5, 2}, {1, 3}};
  int64_t id = 0, next = 0, lists = 0;
  const auto all = [](const Flat&) { return true; };
  const auto walk = [&](const TensorList<Flat>& list) {
    Become(0, 0, {1, kMaxBlock});  // A grid of one block has all spans, in order.
    ForSpans(list, [&](const Flat& tensor, int64_t begin, int64_t end) {
      while (next == kTensors[id].n && id != tensor.id) {
        ++id;
        next = 0;
      }
      EXPECT_TRUE(tensor.id == id && begin == next && end > begin && end - begin <= kSpanElements);
      next = end;
    });
    // The block of the last but one has the end of the large tensor.
    Become(0, list.spans() - 2, {list.spans(), kMaxBlock});
    ForSpans(list, [&](const Flat& tensor, int64_t begin, int64_t end) {
      EXPECT_EQ(tensor.id, 2);
      EXPECT_EQ(begin, 4 * kFar);
      EXPECT_EQ(end, 4 * kFar + 5);
    });
    ++lists;
    return Error{};
  };
  ASSERT_TRUE(ForLists(kTensors, 4, all, walk).ok());
  EXPECT_EQ(lists, 1);
  EXPECT_EQ(id, 3);
  EXPECT_EQ(next, 1);
}

TEST(FarGridsTest, PacksOfASpanAreEveryElementOnce) {
  constexpr int64_t kBegin = 4 * kFar, kEnd = kBegin + kSpanElements - 3;
  std::multiset<int64_t> got;
  for (int64_t thread = 0; thread < kMaxBlock; ++thread) {
    Become(thread, 0, {1, kMaxBlock});
    ForSpanPacks<4>(true, kBegin, kEnd, [&](auto v, int64_t i) {
      for (int64_t k = 0; k < decltype(v)::value; ++k) got.insert(i + k);
    });
  }
  ASSERT_EQ(static_cast<int64_t>(got.size()), kEnd - kBegin);
  EXPECT_EQ(*got.begin(), kBegin);
  EXPECT_EQ(*got.rbegin(), kEnd - 1);
  EXPECT_EQ(static_cast<int64_t>(std::set(got.begin(), got.end()).size()), kEnd - kBegin);
}

// Row 1 of a weight whose row 0 has kFar elements is what a weight of it alone is.
TEST(FarGridsTest, ReadsNf4) {
  SparseMemory memory(Nf4Bytes(2 * kFar, false));
  if (memory.data() == nullptr) GTEST_SKIP();
  Nf4Weight far;
  far.absmax = reinterpret_cast<float*>(memory.data());
  far.codes = far.absmax + Nf4Blocks(2 * kFar);
  const Nf4Weight near = {.codes = static_cast<uint8_t*>(far.codes) + kFar / 2,
                          .absmax = far.absmax + kFar / kNf4Block};
  for (int64_t i = 0; i < 64; ++i) static_cast<uint8_t*>(near.codes)[i] = i * 37 % 256;
  near.absmax[0] = 2.0f;
  near.absmax[1] = 3.0f;
  FrozenWeight far_weight, near_weight;
  far_weight.nf4 = far;
  near_weight.nf4 = near;
  for (int64_t e : {0, 1, 63, 64, 127}) {
    EXPECT_EQ(Nf4Value(far, kFar + e), Nf4Value(near, e));
  }
  for (int64_t e : {0, 4, 124}) {
    const Floats<4> a = FourValues(far_weight, kFar, 1, e, 4),
                    b = FourValues(near_weight, 1, 0, e, 4);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(a.at[i], b.at[i]);
      EXPECT_EQ(a.at[i], Nf4Value(near, e + i));
    }
  }
}

}  // namespace
}  // namespace snug::kernels::cuda
