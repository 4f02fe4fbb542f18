// Numbers of the interpreter, and functions of numbers.
#ifndef TESTS_WORKER_PROGRAM_TOY_NUMBERS_H_
#define TESTS_WORKER_PROGRAM_TOY_NUMBERS_H_

#include <cstdint>

namespace snug::program {

inline constexpr int64_t kToyElement = 4;  // Bytes of an fp32 element, which is one double here.
inline constexpr int kToyMerge = 2;        // Tokens that make a merged row.
// Bits behind the point of a double that stands for a number in fixed point: with those before it
// sums are exact, and a step is small enough for finite differences.
inline constexpr int kToyFixedBits = 44;

// softcap tanh(x / softcap), and its slope at x; x where there is none.
double Cap(double softcap, double x);
double CapSlope(double softcap, double x);

}  // namespace snug::program

#endif  // TESTS_WORKER_PROGRAM_TOY_NUMBERS_H_
