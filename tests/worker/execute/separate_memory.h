// A test's placement: each slot by itself, taken when it is born and given back when it dies,
// between guard zones, poisoned before and after. What a tape says about lifetimes and sizes is
// then what a plain counting allocator sees; a write past a value's end, a read after its death
// and a slot larger than its value show.
#ifndef TESTS_WORKER_EXECUTE_SEPARATE_MEMORY_H_
#define TESTS_WORKER_EXECUTE_SEPARATE_MEMORY_H_

#include <cstdint>
#include <map>
#include <set>

#include "absl/status/status.h"
#include "worker/execute/slot_memory.h"

namespace snug::execute {

// Where the pieces come from. Knows nothing of tapes.
class PieceSource {
 public:
  virtual ~PieceSource() = default;
  // `bytes` is what the slot holds; `guard` more lie before and behind it. Returns the address of
  // the first guard.
  virtual char* Take(int64_t bytes, int64_t guard) = 0;
  virtual void GiveBack(char* first_guard) = 0;
};

class SeparateMemory final : public SlotMemory {
 public:
  explicit SeparateMemory(PieceSource& source) : SeparateMemory(source, source) {}
  // What lies in the host's memory comes from a source of its own.
  SeparateMemory(PieceSource& source, PieceSource& host) : source_(source), host_(host) {}
  SeparateMemory(const SeparateMemory&) = delete;
  SeparateMemory& operator=(const SeparateMemory&) = delete;
  ~SeparateMemory() override;  // Gives back what a run that failed left.

  absl::Status Born(const program::Tape& tape, int32_t slot) override;
  // Fails when something was written into a guard, or the value did not fill the slot.
  absl::Status Died(const program::Tape& tape, int32_t slot) override;
  char* At(const program::Tape& tape, int32_t slot) override;

 private:
  struct Piece {
    PieceSource* source;
    char* first_guard;
  };

  PieceSource& source_;
  PieceSource& host_;
  std::map<int32_t, Piece> live_;  // By slot.
  std::set<int32_t> filled_;  // Slots that died full: a loop's later passes may have less rows.
};

}  // namespace snug::execute

#endif  // TESTS_WORKER_EXECUTE_SEPARATE_MEMORY_H_
