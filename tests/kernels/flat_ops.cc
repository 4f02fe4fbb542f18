// Ops whose operands are lists of tensors, vectors and single numbers. A new op is one entry.
#include "kernels/adamw.h"
#include "kernels/grad_norm.h"
#include "kernels/rope.h"
#include "kernels/sampling.h"
#include "kernels/valid_tokens.h"
#include "tests/kernels/strided_testing.h"

namespace snug::kernels {
namespace {

using O = Operands;

AdamWTensor Parameter(O& o) {
  AdamWTensor tensor = {.n = o.C()};
  o.Vector(tensor.p, tensor.n);
  o.Vector<float>(tensor.g, tensor.n);
  o.Vector<uint16_t>(tensor.copy, tensor.n);
  return tensor;
}

constexpr StridedOp kFlatOps[] = {
    {"AdamW",
     [](O& o) {
       AdamWTensor tensor = Parameter(o);
       o.Vector(tensor.m, tensor.n);
       o.Vector(tensor.v, tensor.n);
       return o.Run(AdamW, {.tensors = &tensor, .count = 1, .step = 1, .lr = 0.1});
     }},
    {"AdamWCodes",
     [](O& o) {
       AdamWTensor tensor = Parameter(o);
       o.Vector(tensor.codes.m, tensor.n);
       o.Vector(tensor.codes.v, tensor.n);
       o.Vector(tensor.codes.m_scale, CodeBlocks(tensor.n));
       o.Vector(tensor.codes.v_scale, CodeBlocks(tensor.n));
       return o.Run(AdamW, {.tensors = &tensor, .count = 1, .step = 1, .lr = 0.1});
     }},
    {"SumSquares",
     [](O& o) {
       NormTensor tensor = {.n = o.C(), .dtype = o.dtype()};
       o.Vector(tensor.x, tensor.n);
       SumSquaresParams p = {.tensors = &tensor, .count = 1};
       o.Vector(p.sum_squares, 1);
       p.workspace = o.Workspace(SumSquaresWorkspace());
       return o.Run(SumSquares, p);
     }},
    {"ClipFactor",
     [](O& o) {
       ClipFactorParams p = {.max_norm = 1.0};
       o.Indices(p.sum_squares, {4.0});
       o.Vector(p.factor, 1);
       return o.Run(ClipFactor, p);
     }},
    {"RopeTable",
     [](O& o) {
       auto p = o.Of<RopeTableParams>();
       p.D = o.C();
       o.Indices(p.positions, {5, 0, 7});
       o.Vector<float>(p.inv_freq, p.D / 2);
       o.Vector(p.cos, kStridedRows * p.D / 2);
       o.Vector(p.sin, kStridedRows * p.D / 2);
       return o.Run(RopeTable, p);
     }},
    {"SampleRows",
     [](O& o) {
       SampleRowsParams p = {.T = 8, .k = 3};
       o.Indices(p.norms, {1.0f, 2.0f, 1.5f, 0.5f, 9.0f, 1.0f, 2.0f, 3.0f});
       o.Vector(p.index, p.k);
       o.Vector(p.weights, p.k);
       p.workspace = o.Workspace(SampleRowsWorkspace(p.T, p.kind));
       return o.Run(SampleRows, p);
     }},
    {"ValidTokens",
     [](O& o) {
       ValidTokensParams p = {.N = 4};
       o.Indices(p.labels, {5, -100, 7, 8});
       o.Vector(p.index, p.N);
       o.Vector(p.count, 1);
       return o.Run(ValidTokens, p);
     }},
};

}  // namespace

std::span<const StridedOp> FlatOps() { return kFlatOps; }

}  // namespace snug::kernels
