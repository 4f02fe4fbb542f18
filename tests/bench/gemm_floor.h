// The products of one step by themselves: what no step that makes them can be faster than.
#ifndef TESTS_BENCH_GEMM_FLOOR_H_
#define TESTS_BENCH_GEMM_FLOOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "worker/program/program.h"
#include "worker/program/tape.h"

namespace snug::bench {

// Seconds on the clock, and of all threads' processors: the latter hardly change with what else
// runs on the machine.
struct Seconds {
  double wall = 0.0;
  double cpu = 0.0;
};

// Of one step over micro-batches of these documents, by kind of product: "linear", "adapter",
// "head", "attention". Each distinct shape is timed alone, on the paths that the worker takes, and
// counts as often as it occurs.
std::map<std::string, Seconds> GemmFloor(const program::Program& program, const program::Tape& tape,
                                         const std::vector<int64_t>& document_tokens);

// Of one call: the fastest of some.
Seconds Fastest(const std::function<void()>& call);

}  // namespace snug::bench

#endif  // TESTS_BENCH_GEMM_FLOOR_H_
