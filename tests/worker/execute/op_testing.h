// What the tests of ops share: a batch of documents, a case of an op, one run of it in fp32.
#ifndef TESTS_WORKER_EXECUTE_OP_TESTING_H_
#define TESTS_WORKER_EXECUTE_OP_TESTING_H_

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/worker/execute/toy_run.h"
#include "tests/worker/execute/trained_tokens.h"
#include "worker/execute/device.h"
#include "worker/execute/op_run.h"
#include "worker/program/op_table.h"

namespace snug::execute {

using program::Op;
using program::OpCode;
using torch::Tensor;
using Tensors = std::vector<Tensor>;

inline constexpr double kTolerance = 1e-6;  // Relative L2, fp32 against float64.

inline constexpr double kLossScale = 0.125;

// What an op computes, in LibTorch: inputs and parameters to outputs.
using Reference = std::function<Tensors(const Tensors& inputs, const Tensors& parameters)>;

struct Case {
  std::string name;
  Op op;
  Tensors inputs;  // float64, one row per token.
  Tensors parameters;
  Reference reference;
  int differentiated_outputs = 1;
};

// A batch of documents of these lengths, with rotation tables of 4 angles.
struct TestBatch {
  explicit TestBatch(const std::vector<int64_t>& lengths);
  std::vector<int32_t> ids, labels, positions;
  std::vector<int64_t> offsets;
  std::vector<float> weights, cos, sin, local_cos, local_sin;
  Batch batch;
};

const TestBatch& Documents();

inline int64_t N() { return Documents().batch.tokens; }

inline Tensor Random(std::vector<int64_t> shape) { return torch::randn(shape, torch::kFloat64); }

inline View ViewOf(const Tensor& t) {
  if (!t.defined()) return {};
  const int64_t width = t.dim() == 1 ? t.size(0) : t.size(1);
  return {t.data_ptr(), t.dim() == 1 ? 1 : t.size(0), width, program::DType::kF32};
}

inline Tensor Poisoned(const Tensor& like) {
  return torch::full_like(like, std::numeric_limits<double>::quiet_NaN(), torch::kFloat32);
}

inline double Error(const Tensor& got, const Tensor& want) {
  const Tensor difference = got.to(torch::kFloat64) - want;
  return (difference.norm() / (want.norm() + 1e-30)).item<double>();
}

// One op in fp32: its operands as tensors, and the run that points at them.
class Fp32Run {
 public:
  explicit Fp32Run(const Case& c) : case_(c) {
    for (const Tensor& x : c.inputs) in_.push_back(x.to(torch::kFloat32).contiguous());
    for (const Tensor& w : c.parameters) {
      parameters_.push_back(w.to(torch::kFloat32).contiguous());
      parameter_gradients_.push_back(torch::zeros_like(parameters_.back()));
    }
    for (const Tensor& y : c.reference(c.inputs, c.parameters)) out_.push_back(Poisoned(y));
  }

  OpRun Run() {
    OpRun run;
    run.op = &case_.op;
    run.block = 2;
    run.op_index = 1;
    batch_ = Documents().batch;
    trained_.PutInto(batch_);
    run.batch = &batch_;
    run.rows = batch_.trained;
    run.device = &TestDevice();
    run.scalars = {.loss_scale = kLossScale, .seed = 11, .step = 3, .micro_batch = 1};
    for (size_t i = 0; i < in_.size(); ++i) run.in[i] = ViewOf(in_[i]);
    for (size_t i = 0; i < out_.size(); ++i) run.out[i] = ViewOf(out_[i]);
    for (size_t i = 0; i < parameters_.size(); ++i)
      run.parameters[i] = {ViewOf(parameters_[i]), ViewOf(parameter_gradients_[i])};
    return run;
  }

  void Forward() { Functions().forward(Run()); }

  // Gradients of the inputs for these of the outputs; `present`: what is added into, where the op
  // can.
  Tensors Backward(const Tensors& d_out, double present = 0.0) {
    OpRun run = Run();
    Tensors d_out32, d_in;
    for (const Tensor& dy : d_out) d_out32.push_back(dy.to(torch::kFloat32).contiguous());
    for (size_t i = 0; i < d_out32.size(); ++i) run.d_out[i] = ViewOf(d_out32[i]);
    const uint8_t can_add = program::RowOf(case_.op.code).can_accumulate;
    for (size_t i = 0; i < in_.size(); ++i) {
      d_in.push_back(Poisoned(in_[i]));
      if (present != 0.0 && (can_add >> i & 1) != 0) {
        d_in.back().fill_(present);
        run.accumulate |= static_cast<uint8_t>(1u << i);
      }
      run.d_in[i] = ViewOf(d_in.back());
    }
    Functions().backward(run);
    return d_in;
  }

  const OpFunctions& Functions() const {
    return OpFunctionsOfKernels()[static_cast<size_t>(case_.op.code)];
  }
  Tensors& in() { return in_; }
  Tensors& out() { return out_; }
  Tensors& parameter_gradients() { return parameter_gradients_; }
  double loss() const { return kLossScale * trained_.Loss(); }

 private:
  const Case& case_;
  Tensors in_, out_, parameters_, parameter_gradients_;
  TrainedTokens trained_{Documents().labels, Documents().weights};
  Batch batch_;
};

inline Op OpOf(OpCode code, program::OpAttributes attributes = {}) {
  Op op;
  op.code = code;
  op.name = "op";
  op.attributes = attributes;
  return op;
}

}  // namespace snug::execute

#endif  // TESTS_WORKER_EXECUTE_OP_TESTING_H_
