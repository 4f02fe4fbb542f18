#include "tests/bench/gemm_floor.h"

#include <ATen/Parallel.h>
#include <time.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "worker/execute/gemm.h"
#include "worker/program/op_table.h"

namespace snug::bench {
namespace {

using execute::GemmCall;
using program::DType;
using program::OpCode;

enum Form { kNN, kNT, kTN };

// m, n, k, form, number type.
using Shape = std::tuple<int64_t, int64_t, int64_t, Form, DType>;
using Counts = std::map<std::string, std::map<Shape, int64_t>>;

constexpr int64_t kQueryBlock = 64;  // Rows of attention that a block of scores has.

double Clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Reads and writes memory that products share; what it holds does not matter.
GemmCall CallOf(const Shape& shape, std::vector<float>& memory) {
  const auto& [m, n, k, form, dtype] = shape;
  memory.resize(static_cast<size_t>(std::max<int64_t>(m * k + k * n + m * n, memory.size())));
  GemmCall call{.a = memory.data(), .b = memory.data() + m * k, .c = memory.data() + m * k + k * n};
  call.m = m;
  call.n = n;
  call.k = k;
  call.a_transposed = form == kTN;
  call.b_transposed = form == kNT;
  call.a_stride = call.a_transposed ? m : k;
  call.b_stride = call.b_transposed ? k : n;
  call.c_stride = n;
  call.dtype = dtype;
  return call;
}

class Counter {
 public:
  Counter(const program::Program& program, int64_t tokens) : program_(program), tokens_(tokens) {}

  // Of the lines behind, the head's is in passes.
  void Begin(const program::LoopHead& loop) { rows_of_pass_ = loop.rows_of_pass; }

  void Add(const program::Instruction& line) {
    const program::BlockType& type = program_.type_of(line.block);
    const program::Op& op = *line.op;
    const auto width = [&](int value) { return type.values[static_cast<size_t>(value)].width; };
    const bool forward = line.direction == program::Direction::kForward;
    const bool dz = !forward && bool{line.operands.d_in[0]};
    const DType compute = program_.compute;
    switch (op.code) {
      case OpCode::kLinear:
      case OpCode::kLoraLinear: {
        const bool adapted = op.code == OpCode::kLoraLinear;
        const bool dw = !forward && !adapted && Trains(line);
        Product("linear", {width(op.inputs[0]), width(op.outputs[0]), compute}, forward, dz, dw);
        const Matrix up{op.attributes.rank, width(op.outputs[0]), DType::kF32};
        if (adapted) Product("adapter", up, forward, !forward, !forward);
        break;
      }
      case OpCode::kLoraDown:
        Product("adapter", {width(op.inputs[0]), width(op.outputs[0]), DType::kF32}, forward, dz,
                !forward);
        break;
      case OpCode::kHeadLoss: {
        const Matrix head{width(op.inputs[0]), program_.config.vocabulary, compute};
        const int64_t all = tokens_;
        for (int64_t first = 0; first < all; first += rows_of_pass_) {
          tokens_ = std::min(rows_of_pass_, all - first);
          Product("head", head, /*forward=*/true, dz, !forward && Trains(line));
        }
        tokens_ = all;
        break;
      }
      default:
        break;
    }
  }

  const Counts& counts() const { return counts_; }

 private:
  struct Matrix {
    int64_t in, out;
    DType dtype;
  };

  static bool Trains(const program::Instruction& line) { return (line.wanted.parameters & 1) != 0; }

  void Product(const char* kind, const Matrix& w, bool forward, bool d_input, bool d_weight) {
    if (forward) ++counts_[kind][{tokens_, w.out, w.in, kNT, w.dtype}];
    if (d_input) ++counts_[kind][{tokens_, w.in, w.out, kNN, w.dtype}];
    if (d_weight) ++counts_[kind][{w.out, w.in, tokens_, kTN, w.dtype}];
  }

  const program::Program& program_;
  int64_t tokens_, rows_of_pass_ = 0;
  Counts counts_;
};

// The blocks of one head of one document: two products forward, five backward.
std::vector<Shape> HeadProducts(const program::OpAttributes& a, int64_t tokens, DType dtype,
                                bool forward) {
  std::vector<Shape> shapes;
  for (int64_t first = 0; first < tokens; first += kQueryBlock) {
    const int64_t rows = std::min(kQueryBlock, tokens - first), end = first + rows;
    const int64_t begin = a.window > 0 ? std::max<int64_t>(0, first - a.window + 1) : 0;
    const int64_t keys = end - begin, width = a.head_width;
    shapes.push_back({rows, keys, width, kNT, dtype});  // scores
    shapes.push_back({rows, width, keys, kNN, dtype});  // forward: o; backward: dq
    if (forward) continue;
    shapes.push_back({rows, keys, width, kNT, dtype});  // dp
    shapes.push_back({keys, width, rows, kTN, dtype});  // dv
    shapes.push_back({keys, width, rows, kTN, dtype});  // dk
  }
  return shapes;
}

Seconds AttentionSeconds(const program::OpAttributes& a, const std::vector<int64_t>& documents,
                         DType dtype, bool forward) {
  const auto heads = static_cast<int64_t>(documents.size()) * a.heads;
  return Fastest([&] {
    at::parallel_for(0, heads, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> memory;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t tokens = documents[static_cast<size_t>(i / a.heads)];
        for (const Shape& shape : HeadProducts(a, tokens, dtype, forward)) {
          execute::Gemm(CallOf(shape, memory));
        }
      }
    });
  });
}

}  // namespace

Seconds Fastest(const std::function<void()>& call) {
  constexpr int kRepeats = 3;
  call();
  Seconds best{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  for (int i = 0; i < kRepeats; ++i) {
    const double wall = Clock(CLOCK_MONOTONIC), cpu = Clock(CLOCK_PROCESS_CPUTIME_ID);
    call();
    best.wall = std::min(best.wall, Clock(CLOCK_MONOTONIC) - wall);
    best.cpu = std::min(best.cpu, Clock(CLOCK_PROCESS_CPUTIME_ID) - cpu);
  }
  return best;
}

std::map<std::string, Seconds> GemmFloor(const program::Program& program, const program::Tape& tape,
                                         const std::vector<int64_t>& document_tokens) {
  Counter counter(program,
                  std::accumulate(document_tokens.begin(), document_tokens.end(), int64_t{0}));
  std::map<std::string, Seconds> floor;
  std::map<std::tuple<bool, int64_t>, Seconds> attention;  // By direction and window.
  for (const program::Instruction& line : tape.instructions) {
    if (line.kind == program::Instruction::Kind::kLoop) counter.Begin(line.loop);
    if (line.kind != program::Instruction::Kind::kRun || line.recomputed) continue;
    counter.Add(line);
    const program::Op& op = *line.op;
    if (op.code != OpCode::kAttention) continue;
    const bool forward = line.direction == program::Direction::kForward;
    auto [found, fresh] = attention.try_emplace({forward, op.attributes.window});
    if (fresh) {
      found->second = AttentionSeconds(op.attributes, document_tokens, program.compute, forward);
    }
    floor["attention"].wall += found->second.wall;
    floor["attention"].cpu += found->second.cpu;
  }
  std::vector<float> memory;
  for (const auto& [kind, shapes] : counter.counts()) {
    for (const auto& [shape, count] : shapes) {
      const GemmCall call = CallOf(shape, memory);
      const Seconds once = Fastest([&] { execute::Gemm(call); });
      floor[kind].wall += once.wall * static_cast<double>(count);
      floor[kind].cpu += once.cpu * static_cast<double>(count);
    }
  }
  return floor;
}

}  // namespace snug::bench
