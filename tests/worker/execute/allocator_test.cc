// Who gives back what, where a slice begins at the very address of the arena that it lies in.
#include "worker/execute/allocator.h"

#include <c10/core/CPUAllocator.h>

#include <thread>

#include "gtest/gtest.h"
#include "worker/execute/cpu_allocator.h"

namespace snug::execute {
namespace {

constexpr int64_t kArenaBytes = 256;
constexpr int64_t kPieceBytes = 64;

class AllocatorTest : public ::testing::Test {
 protected:
  void Open() {
    allocator_.OpenSlice({.base = static_cast<char*>(arena_.get()), .bytes = kArenaBytes});
  }
  int64_t current() const { return allocator_.usage().current_bytes; }
  void GiveBackTheArena() {
    const int64_t before = current();
    arena_.clear();
    EXPECT_EQ(current(), before - kArenaBytes);
  }

  TrackingAllocator& allocator_ = CpuAllocator();
  c10::Allocator& aten_ = *c10::GetCPUAllocator();
  c10::DataPtr arena_ = aten_.allocate(kArenaBytes);
  const int64_t with_arena_ = current();
};

TEST_F(AllocatorTest, APieceOfAnOpenSliceIsItsOwn) {
  Open();
  c10::DataPtr piece = aten_.allocate(kPieceBytes);
  EXPECT_EQ(piece.get(), arena_.get());
  piece.clear();
  void* raw = aten_.raw_allocate(kPieceBytes);
  EXPECT_EQ(raw, arena_.get());  // The room of the first is free again.
  aten_.raw_deallocate(raw);
  EXPECT_EQ(allocator_.CloseSlice(), kPieceBytes);
  EXPECT_EQ(current(), with_arena_);
  GiveBackTheArena();
}

// An op that keeps a piece beyond its run: reported at once, and its release frees no arena.
TEST_F(AllocatorTest, APieceThatOutlivesItsClosedSliceIsNotTheArena) {
  Open();
  c10::DataPtr piece = aten_.allocate(kPieceBytes);
  ASSERT_EQ(piece.get(), arena_.get());
  EXPECT_THROW(allocator_.CloseSlice(), SliceExceeded);
  piece.clear();
  EXPECT_EQ(current(), with_arena_);
  GiveBackTheArena();
}

// An op that threw, and what its unwinding has not given back.
TEST_F(AllocatorTest, APieceThatOutlivesItsAbandonedSliceIsNotTheArena) {
  Open();
  c10::DataPtr piece = aten_.allocate(kPieceBytes);
  allocator_.AbandonSlice();
  piece.clear();
  EXPECT_EQ(current(), with_arena_);
  GiveBackTheArena();
}

// As oneDNN takes memory: a bare address, with one deleter for all of them.
TEST_F(AllocatorTest, ABareAddressThatOutlivesItsSliceIsNotTheArena) {
  Open();
  void* piece = aten_.raw_allocate(kPieceBytes);
  ASSERT_EQ(piece, arena_.get());
  allocator_.AbandonSlice();
  aten_.raw_deallocate(piece);
  EXPECT_EQ(current(), with_arena_);
  GiveBackTheArena();
}

TEST_F(AllocatorTest, ABareAddressFromOutsideIsCountedAndGivenBack) {
  void* raw = aten_.raw_allocate(kPieceBytes);
  EXPECT_EQ(current(), with_arena_ + kPieceBytes);
  Open();
  aten_.raw_deallocate(raw);  // While an op runs, too.
  EXPECT_EQ(current(), with_arena_);
  EXPECT_EQ(allocator_.CloseSlice(), 0);
}

// ATen's own threads take from the slice of the op that they work for.
TEST_F(AllocatorTest, EachThreadThatRunsAnOpTakesFromItsOwnSlice) {
  const c10::DataPtr others = aten_.allocate(kArenaBytes);
  const int64_t outside = current();
  Open();
  void* own = aten_.raw_allocate(kPieceBytes);
  EXPECT_EQ(own, arena_.get());
  std::thread([&] {
    void* helped = aten_.raw_allocate(kPieceBytes);
    EXPECT_EQ(helped, static_cast<char*>(arena_.get()) + kPieceBytes);
    aten_.raw_deallocate(helped);
  }).join();
  std::thread([&] {
    allocator_.OpenSlice({.base = static_cast<char*>(others.get()), .bytes = kArenaBytes});
    void* piece = aten_.raw_allocate(kPieceBytes);
    EXPECT_EQ(piece, others.get());
    aten_.raw_deallocate(piece);
    EXPECT_EQ(allocator_.CloseSlice(), kPieceBytes);
    void* free = aten_.raw_allocate(kPieceBytes);  // Behind its op, while another runs.
    EXPECT_EQ(current(), outside + kPieceBytes);
    aten_.raw_deallocate(free);
  }).join();
  EXPECT_EQ(current(), outside);
  aten_.raw_deallocate(own);
  EXPECT_EQ(allocator_.CloseSlice(), 2 * kPieceBytes);
}

// ---- a block ------------------------------------------------------------------------------------

// A source that says how often it was asked, and for how much.
struct CountingSource {
  static void* Take(void* self, int64_t bytes) {
    auto* source = static_cast<CountingSource*>(self);
    ++source->takes;
    source->bytes += bytes;
    return source->memory;
  }
  static void GiveBack(void* self, void* address) {
    auto* source = static_cast<CountingSource*>(self);
    ++source->returns;
    EXPECT_EQ(address, source->memory);
  }
  alignas(64) char memory[1024];
  int takes = 0, returns = 0;
  int64_t bytes = 0;
};

class BlockTest : public ::testing::Test {
 protected:
  CountingSource source_;
  TrackingAllocator allocator_{
      {.take = &CountingSource::Take, .give_back = &CountingSource::GiveBack, .self = &source_}};
};

TEST_F(BlockTest, PartsLieBehindOneAnotherAndCountOnce) {
  allocator_.OpenBlock(640);
  const auto first = allocator_.Take(100), second = allocator_.Take(512);
  EXPECT_EQ(first.address, source_.memory);
  EXPECT_EQ(second.address, source_.memory + 128);
  EXPECT_EQ(allocator_.usage().current_bytes, 640);
  EXPECT_THROW(allocator_.Take(1), CapExceeded);
  allocator_.GiveBack(second);
  allocator_.GiveBack(first);
  EXPECT_EQ(source_.returns, 0);
  allocator_.CloseBlock();
  EXPECT_EQ(source_.takes, 1);
  EXPECT_EQ(source_.bytes, 640);
  EXPECT_EQ(source_.returns, 1);
  EXPECT_EQ(allocator_.usage().current_bytes, 0);
  EXPECT_EQ(allocator_.usage().peak_bytes, 640);
}

TEST_F(BlockTest, TheCapIsTheWholeBlocks) {
  allocator_.SetCap(639);
  EXPECT_THROW(allocator_.OpenBlock(640), CapExceeded);
  EXPECT_EQ(source_.takes, 0);
  allocator_.SetCap(640);
  allocator_.OpenBlock(640);
  EXPECT_THROW(allocator_.OpenBlock(1), std::logic_error);
  allocator_.CloseBlock();
}

// An arena that is part of a block: a slice may begin at its address, or at the block's own.
TEST_F(BlockTest, APieceThatOutlivesItsSliceGivesNothingBack) {
  allocator_.OpenBlock(640);
  const auto arena = allocator_.Take(256);
  allocator_.OpenSlice({.base = static_cast<char*>(arena.address), .bytes = 256});
  const auto piece = allocator_.Take(64);
  EXPECT_EQ(piece.address, arena.address);
  EXPECT_THROW(allocator_.CloseSlice(), SliceExceeded);
  allocator_.GiveBackAddress(piece.address);
  allocator_.GiveBack(arena);
  EXPECT_EQ(allocator_.usage().current_bytes, 640);
  allocator_.CloseBlock();
  EXPECT_EQ(source_.returns, 1);
}

}  // namespace
}  // namespace snug::execute
