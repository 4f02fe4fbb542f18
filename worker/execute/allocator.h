// Every byte that tensors take on a device goes through here: counted, capped, and inside an op
// served from that op's slice of the arena. Where the bytes come from is the device's.
//
// Invariants: outside an op, current + asked <= cap or the call throws CapExceeded; inside an op,
// nothing comes from anywhere but the slice, or the call throws SliceExceeded. While a block is
// open and not sealed, what is taken outside ops is part of it: the block counts, its parts do not.
// Every address is a multiple of kAlignment and sizes count rounded up to it. It never looks into
// the memory.
//
// Safe to call from any thread. Two may run an op each, in slices of their own, which they opened.
// A thread that never opened one is ATen's, and works for an op while one runs.
//
// The first piece of a slice can have the address of the arena that the slice lies in. Which of the
// two is given back is said by the function called, never by the address; a piece that outlives its
// slice gives nothing back. It ends the attempt, so that no later slice is mistaken for its own.
#ifndef WORKER_EXECUTE_ALLOCATOR_H_
#define WORKER_EXECUTE_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>

namespace snug::execute {

// What a piece of `bytes` counts for.
int64_t CountedBytes(int64_t bytes);

// More than the attempt was promised. Thrown through ATen; torch_errors.h turns it into a Status.
class CapExceeded : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An op took more than the op table declares for it.
class SliceExceeded : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Where an op's own allocations come from while it runs.
struct Slice {
  char* base = nullptr;  // A multiple of kAlignment.
  int64_t bytes = 0;     // Declared.
  const char* op = "";   // For the message: the op's name,
  int block = 0;         // and its block.
};

// A device's own functions. `take` gives a multiple of kAlignment, or null when there is no more.
struct MemorySource {
  void* (*take)(void* self, int64_t bytes) = nullptr;
  void (*give_back)(void* self, void* address) = nullptr;
  void* self = nullptr;
};

class TrackingAllocator {
 public:
  struct Usage {
    int64_t current_bytes = 0;
    int64_t peak_bytes = 0;
    int64_t cap_bytes = 0;
  };
  // Of an allocation: what gives it back.
  enum class Origin : uint8_t { kOutside, kSlice };
  struct Taken {
    void* address = nullptr;
    Origin origin = Origin::kOutside;
  };

  explicit TrackingAllocator(const MemorySource& source) : source_(source) {}
  TrackingAllocator(const TrackingAllocator&) = delete;
  TrackingAllocator& operator=(const TrackingAllocator&) = delete;

  void SetCap(int64_t bytes);
  Usage usage() const;
  void ResetPeak();

  // One piece of the source, whose parts are given out one behind another, each once. One at a time
  // (else std::logic_error); closed after its parts have been given back.
  void OpenBlock(int64_t bytes);
  void SealBlock();  // From now on nothing is part of it any more.
  void CloseBlock();

  // That of the op which the calling thread runs.
  void OpenSlice(const Slice& slice);
  // The most that was in use at one time, measured to the end of the highest block. Throws
  // SliceExceeded when the op still holds any.
  int64_t CloseSlice();
  // After an op that threw: what it held has been given back by unwinding, or is lost with the
  // attempt.
  void AbandonSlice();

  // `bytes` > 0.
  Taken Take(int64_t bytes);
  void GiveBack(const Taken& taken);
  // Of what was taken as a bare address. An arena never is: what has its address was its first
  // piece.
  void GiveBackAddress(void* address);

 private:
  struct Outside {
    int64_t bytes = 0;           // Rounded.
    bool begins_slices = false;  // A slice began at its address: it is an arena.
  };

  struct Block {
    char* base = nullptr;
    int64_t bytes = 0;
    int64_t given_bytes = 0;
    bool sealed = false;
  };

  // The slice of an op.
  struct OpSlice {
    Slice slice;
    bool open = false;
    std::map<int64_t, int64_t> pieces;  // Offset -> rounded bytes.
    int64_t peak_bytes = 0;
  };

  // That serves the calling thread; null: it takes from outside.
  OpSlice* SliceInUse();
  bool GiveBackPiece(void* address);
  void GiveBackOutside(void* address);
  bool InBlock(const void* address) const;
  void* TakeOutside(int64_t bytes);
  void* TakeFromSource(int64_t bytes);
  void* TakeFromBlock(int64_t bytes);
  static void* TakeFromSlice(OpSlice& op, int64_t bytes);

  const MemorySource source_;
  mutable std::mutex mutex_;
  int64_t cap_bytes_ = INT64_MAX;
  int64_t current_bytes_ = 0;
  int64_t peak_bytes_ = 0;
  std::unordered_map<void*, Outside> outside_;  // By address.
  Block block_;                                 // No base: none is open.
  std::map<int64_t, OpSlice> slices_;           // By the thread that opens them.
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_ALLOCATOR_H_
