// Every byte that tensors take on the CPU goes through here: counted, capped, and inside an op
// served from that op's slice of the arena.
//
// Invariants: outside an op, current + asked <= cap or the call throws CapExceeded; inside an op,
// nothing comes from anywhere but the slice, or the call throws SliceExceeded. Every address is a
// multiple of kAlignment and sizes count rounded up to it. The process has one (ATen's CPU
// allocator is global); ATen's threads call it too.
//
// The first piece of a slice can have the address of the arena that the slice lies in. Which of the
// two is given back is said by the deleter, never by the address; a piece that outlives its slice
// gives nothing back. It ends the attempt, so that no later slice is mistaken for its own.
#ifndef WORKER_EXECUTE_ALLOCATOR_H_
#define WORKER_EXECUTE_ALLOCATOR_H_

#include <c10/core/Allocator.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>

namespace snug::execute {

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

class TrackingAllocator final : public c10::Allocator {
 public:
  struct Usage {
    int64_t current_bytes = 0;
    int64_t peak_bytes = 0;
    int64_t cap_bytes = 0;
  };

  // Makes this the CPU allocator of ATen, once; lives as long as the process.
  static TrackingAllocator& Install();

  void SetCap(int64_t bytes);
  Usage usage() const;
  void ResetPeak();

  void OpenSlice(const Slice& slice);
  // The most that was in use at one time, measured to the end of the highest block. Throws
  // SliceExceeded when the op still holds any.
  int64_t CloseSlice();
  // After an op that threw: what it held has been given back by unwinding, or is lost with the
  // attempt.
  void AbandonSlice();

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;

 private:
  struct Outside {
    int64_t bytes = 0;           // Rounded.
    bool begins_slices = false;  // A slice began at its address: it is an arena.
  };

  TrackingAllocator() = default;
  // What deleters do: of a piece from outside any slice, of one from a slice, and of one that was
  // taken as a bare address, of which only one deleter can be.
  static void ReleaseOutside(void* address);
  static void ReleasePiece(void* address);
  static void ReleaseRaw(void* address);
  bool GiveBackPiece(void* address);
  void GiveBackOutside(void* address);
  void* TakeOutside(int64_t bytes);
  void* TakeFromSlice(int64_t bytes);
  [[noreturn]] void RefuseSlice(int64_t bytes, int64_t in_use) const;

  mutable std::mutex mutex_;
  int64_t cap_bytes_ = INT64_MAX;
  int64_t current_bytes_ = 0;
  int64_t peak_bytes_ = 0;
  std::unordered_map<void*, Outside> outside_;  // By address.
  bool in_op_ = false;
  Slice slice_;
  std::map<int64_t, int64_t> blocks_;  // Of the slice: offset -> rounded bytes.
  int64_t slice_peak_bytes_ = 0;
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_ALLOCATOR_H_
