// The ways of keeping a value from forward to backward. A way is one row of a table here: what is
// held meanwhile, where, how exact it is, and what makes it. Lowering, replay and planner read
// nothing else about it; what an op does to bytes is its kernel's.
#ifndef WORKER_PROGRAM_STASH_H_
#define WORKER_PROGRAM_STASH_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "worker/program/program.h"
#include "worker/program/tape.h"

namespace snug::program {

// Bytes of a row of codes: its ranges (two bf16 for each 128 elements), then the codes.
constexpr int64_t CodedRowBytes(int64_t width, int code_bits) {
  return (width + 127) / 128 * 4 + (width * code_bits + 7) / 8;
}

// Bytes of a row of codes of two bits.
constexpr int64_t TwoBitRowBytes(int64_t width) { return (width + 3) / 4; }

enum class Stash : uint8_t {
  kKeep,       // As it is.
  kRecompute,  // Not at all: its op runs again.
  kOffload,    // As it is, in the host's memory.
  kInt8,       // As codes of 8 bits with ranges (Mesa, kernels/quantize.h).
  kInt4,       // ... of 4 bits.
  kTwoBit,     // An activation's input as codes of its slope (LowMemoryBP, kernels/codes.h).
  kChunk,      // Not at all: the ops about it run over a few rows at a time (MST).
};
inline constexpr int kStashes = 7;
inline constexpr std::array<Stash, kStashes> kAllStashes = {
    Stash::kKeep, Stash::kRecompute, Stash::kOffload, Stash::kInt8,
    Stash::kInt4, Stash::kTwoBit,    Stash::kChunk};

// How one site is kept: a kind and what it takes.
struct SiteStash {
  Stash kind = Stash::kKeep;
  int32_t rows = 0;  // kChunk: rows of a pass; 0: by the tokens there are (RowsOfPass).

  SiteStash() = default;
  SiteStash(Stash kind, int32_t rows = 0) : kind(kind), rows(rows) {}  // NOLINT: a kind is enough.
  auto operator<=>(const SiteStash&) const = default;
};

// What backward has of a value that was kept so, worst last.
enum class Fidelity : uint8_t {
  kExact,        // The same gradient up to rounding.
  kUnbiased,     // Noise of mean zero.
  kApproximate,  // Biased.
};

struct StashRow {
  const char* name;
  Fidelity fidelity;
  // Instead of the value a form of it is held: written when the value has been made, read when
  // backward first asks for it. Else the value itself is, or nothing.
  bool has_form = false;
  Region region = Region::kStash;  // Where a form lies.
  int code_bits = 0;               // Of a form of codes, for each element; 0: a copy.
  // No op makes the value of its form: the backward of the op that reads the value takes the form
  // itself (OpRow), and that op's forward writes it.
  bool by_reader = false;
  bool in_loop = false;  // The ops that make and read the value run in a loop over rows.
};

const StashRow& RowOf(Stash stash);

// Empty: no stash has this name.
std::optional<Stash> StashOfName(std::string_view name);

// Whether the backward of `reader` takes the form in which `stash` holds its input `input`.
bool TakesForm(const Op& reader, size_t input, Stash stash);

// The shape of the form in which `stash` holds a value of that shape; of one that is by its reader,
// for that op.
Operand FormOf(Stash stash, const Operand& value, const Op* reader = nullptr);

// What writes the form and what reads it, as ops of no block; null: a copy does.
const Op* PackOf(Stash stash);
const Op* UnpackOf(Stash stash);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_STASH_H_
