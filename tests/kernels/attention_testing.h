// A case of attention with everything that a run of the op reads and writes, and what it should
// give by a reference in double that knows nothing of blocks.
#ifndef TESTS_KERNELS_ATTENTION_TESTING_H_
#define TESTS_KERNELS_ATTENTION_TESTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cpu/loops/loops.h"
#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {

struct AttentionCase {
  std::vector<int64_t> lengths = {33};
  int64_t heads = 2, kv_heads = 2, D = 8;
  int64_t window = 0;
  bool causal = true;
  int64_t bias = 0;    // Entries; 0: none.
  int64_t origin = 0;  // Of the bias.
  int64_t pitch = 0;   // Of it, with which each document is a grid of so many columns.
  std::vector<int64_t> widths = {};
  double softcap = 0.0, dropout = 0.0;
  DType dtype = DType::kF32;
  double spread = 1.0;  // Deviation of q and k.
  // Keys before the first query of each document; then keys lie apart, in rows of their own. Below
  // 0: so many keys fewer than queries.
  std::vector<int64_t> earlier = {};

  std::string Text() const;
  int64_t tokens() const;
};

struct Attended {
  explicit Attended(const AttentionCase& c);

  AttentionShape Shape() const;
  // The workspace that backward needs, with as many threads as there are.
  int64_t BackwardBytes() const;
  // With a workspace of NaN, on the CPU for as many threads as there are, and a pattern behind it.
  AttentionForwardParams ForwardParams();
  AttentionBackwardParams BackwardParams();
  // On the test's device. Expect success, and that the pattern is still there.
  void Forward();
  void Backward();
  // What dropout makes of the probability of a row of q, a head and a key of its document.
  double Kept(int64_t row, int64_t head, int64_t key) const;

  AttentionCase c;
  SharedVector<int64_t> offsets = {0}, key_begins, key_counts, widths;
  double scale;
  Matrix q, k, v, o, lse, dO, dq, dk, dv;
  Matrix bias, d_bias;  // One column where there is no bias; d_bias begins as zeros.
  SharedVector<float> workspace;

 private:
  void Work(int64_t bytes);
  bool WithinWorkspace() const;
};

// What is tested on the CPU, or on CUDA, whose emulation is slow.
template <typename T>
std::vector<T> OnDevice(std::vector<T> cpu, std::vector<T> cuda) {
  return OnCpu() ? cpu : cuda;
}

// Of all results, gaps included.
Bytes AllBytes(const Attended& run);

// Relative L2, or absolute where all of it is less than 1.
double ErrorOf(const Matrix& got, const Reference& want);
// That a result is near to what it should be, and the memory around it untouched.
void ExpectNear(const Attended& run, const Matrix& got, const Reference& want, const char* what);

struct AttentionInputs {
  explicit AttentionInputs(const Attended& run)
      : q(Dense(run.q)), k(Dense(run.k)), v(Dense(run.v)), bias(Dense(run.bias)) {}
  std::vector<double> q, k, v, bias;
};

// Query row by query row.
struct Expected {
  Reference o, lse, dq, dk, dv, d_bias;

  // Of these inputs instead of the run's; gradients stay empty unless asked for.
  Expected(const Attended& run, const AttentionInputs& in, bool gradients);
  explicit Expected(const Attended& run) : Expected(run, AttentionInputs(run), true) {}

 private:
  struct Place {
    int64_t row, head, first, end;  // The keys from first to before end,
    int64_t document;               // the first of its document,
    int64_t position;               // and that of the query.
    int64_t width;                  // Of the document's grid; 0: it is none.
  };
  void QueryRow(const Attended& run, const AttentionInputs& in, const Place& at);
};

// Runs, and expects what the reference gives.
void CheckAttentionForward(Attended& run, const Expected& expected);
void CheckAttentionBackward(Attended& run, const Expected& expected);
void CheckAttention(const AttentionCase& c);

// What o . dO, by the reference, changes by with each element of an input: finite differences.
Reference DifferencesOfLoss(const Attended& run, std::vector<double> AttentionInputs::*input);

}  // namespace snug::kernels

#endif  // TESTS_KERNELS_ATTENTION_TESTING_H_
