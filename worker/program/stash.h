// The ways of keeping a value from forward to backward. A way is one row of a table here: what is
// held meanwhile, where, how exact it is, and what makes it. Lowering, replay and planner read
// nothing else about it; what an op does to bytes is its kernel's.
#ifndef WORKER_PROGRAM_STASH_H_
#define WORKER_PROGRAM_STASH_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
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
  kKeep,        // As it is.
  kRecompute,   // Not at all: its op runs again.
  kOffload,     // As it is, in the host's memory.
  kInt8,        // As codes of 8 bits with ranges (Mesa, kernels/quantize.h).
  kInt4,        // ... of 4 bits.
  kTwoBit,      // An activation's input as codes of its slope (LowMemoryBP, kernels/codes.h).
  kChunk,       // Not at all: the ops about it run over a few rows at a time (MST).
  kSampled,     // Of a linear's input some rows, weighted (WTA-CRS, kernels/sampling.h).
  kReversible,  // Not at all: an inverse makes it of what was made of it, else its op runs again.
};
inline constexpr int kStashes = 9;
inline constexpr std::array<Stash, kStashes> kAllStashes = {
    Stash::kKeep,   Stash::kRecompute, Stash::kOffload, Stash::kInt8,      Stash::kInt4,
    Stash::kTwoBit, Stash::kChunk,     Stash::kSampled, Stash::kReversible};

// How the rows of a sample are drawn (kernels/sampling.h).
enum class Estimator : uint8_t {
  kPps,  // Distinct rows, systematically: the lower variance.
  kWta,  // The paper's: with replacement.
};
const char* NameOf(Estimator estimator);  // "pps", "wta".

inline constexpr uint16_t kUsualShare = 3000;  // The paper's rho of 0.3, in parts of kWholeShare.
// Bytes of what lies with each row of a sample: its weight, and its place among all rows.
inline constexpr int64_t kSampledRowBytes = 8;

// How one site is kept: a kind and what it takes.
struct SiteStash {
  Stash kind = Stash::kKeep;
  int32_t rows = 0;    // kChunk: rows of a pass; 0: by the tokens there are (RowsOfPass).
  uint16_t share = 0;  // kSampled: of the rows, how many are kept, in parts of kWholeShare,
  Estimator estimator = Estimator::kPps;  // and how they are drawn.
  // kReversible: what a layer makes again runs beside the backward of the layer behind it
  // (lowering/recovery.h).
  bool ahead = false;

  SiteStash() = default;
  SiteStash(Stash kind, int32_t rows = 0)  // NOLINT: a kind is enough.
      : kind(kind), rows(rows), share(kind == Stash::kSampled ? kUsualShare : uint16_t{0}) {}
  double rho() const { return static_cast<double>(share) / kWholeShare; }
  auto operator<=>(const SiteStash&) const = default;
};

// kSampled as it is spelled; what is not given (no rho, an estimator of "") is as usual. Errors:
// what is out of its range.
absl::StatusOr<SiteStash> SampledBy(std::optional<double> rho, std::string_view estimator);

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
  // No op makes the value of its form: backwards that can (OpRow) take the form itself.
  bool taken = false;
  // ... and the forward of the op that reads the value writes it.
  bool by_reader = false;
  bool in_loop = false;     // The ops that make and read the value run in a loop over rows.
  bool by_inverse = false;  // The inverse of the op that read it makes it again (OpRow::inverse).
};

const StashRow& RowOf(Stash stash);

inline constexpr int kFewestCodeBits = 4;

// What a job lets be done to fit.
struct FormsAllowed {
  Fidelity fidelity = Fidelity::kExact;
  bool on_host = false;
  int least_code_bits = 8;  // Of codes that an op turns back into the value: more are nearer to it.

  bool Allows(Stash stash) const;
};

// Empty: no stash has this name.
std::optional<Stash> StashOfName(std::string_view name);

// Whether the backward of `reader` takes the form in which `stash` holds its input `input`.
bool TakesForm(const Op& reader, size_t input, Stash stash);

// The shape of the form in which `stash` holds a value of that shape; of one that is by its reader,
// for that op.
Operand FormOf(const SiteStash& stash, const Operand& value, const Op* reader = nullptr);

// What writes the form and what reads it, as ops of no block; null: a copy does.
const Op* PackOf(const SiteStash& stash);
const Op* UnpackOf(Stash stash);

// The form that the op makes of a value, one of PackOf's; kKeep: it is none of them.
Stash FormMadeBy(const Op& op);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_STASH_H_
