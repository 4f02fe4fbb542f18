// Reversible streams in fixed point. LibTorch's side has the low bits as a byte each.
#include "kernels/reversible.h"
#include "tests/bench/kernels/rows.h"

namespace snug::bench {
namespace {

constexpr float kScale = 1 << kernels::kFixedBits;

at::Tensor ToFixed(const at::Tensor& f) { return (f * kScale).round_().to(at::kInt); }

Case FixedAdd(Operands& o) {
  const at::Tensor f = o.Random(), y = o.Empty(), out = o.Empty({o.N, o.C}, at::kInt);
  const at::Tensor v = o.Keep(at::zeros({o.N, o.C}, o.options(at::kInt)));
  return {.bytes = 8 * o.elements() + 2 * o.bytes(),
          .own = Call(kernels::FixedAdd, {.v = Ints(v),
                                          .f = f.data_ptr(),
                                          .v_out = Ints(out),
                                          .y = y.data_ptr(),
                                          .N = o.N,
                                          .C = o.C,
                                          .v_stride = o.C,
                                          .f_stride = o.C,
                                          .v_out_stride = o.C,
                                          .y_stride = o.C,
                                          .dtype = o.dtype,
                                          .y_dtype = o.dtype}),
          .torch = [=] { y.copy_((v + ToFixed(f)).to(at::kFloat).mul_(1.0f / kScale)); }};
}

Case FixedShiftAdd(Operands& o, bool inverse) {
  constexpr int kShift = 1;
  const int64_t side_bytes = kernels::SideBytes(o.C, kShift);
  const at::Tensor f = o.Random(), out = o.Empty({o.N, o.C}, at::kInt);
  const at::Tensor v = o.Keep(at::zeros({o.N, o.C}, o.options(at::kInt)));
  const at::Tensor side = o.Ones({o.N, side_bytes}, at::kByte), low = o.Ones({o.N, o.C}, at::kByte);
  return {.bytes = 8 * o.elements() + o.bytes() + o.N * side_bytes,
          .own = Call(kernels::FixedShiftAdd, {.v = Ints(v),
                                               .f = f.data_ptr(),
                                               .v_out = Ints(out),
                                               .side = Bytes(side),
                                               .N = o.N,
                                               .C = o.C,
                                               .v_stride = o.C,
                                               .f_stride = o.C,
                                               .v_out_stride = o.C,
                                               .side_stride = side_bytes,
                                               .dtype = o.dtype,
                                               .shift = kShift,
                                               .inverse = inverse}),
          .torch = [=] {
            if (inverse) {
              (v - ToFixed(f)).bitwise_left_shift_(kShift).add_(low);
            } else {
              low.copy_(v.bitwise_and((1 << kShift) - 1));
              at::bitwise_right_shift(v, kShift).add_(ToFixed(f));
            }
          }};
}

}  // namespace

std::vector<Row> StreamRows() {
  return {
      {"FixedAdd", FixedAdd},
      {"FixedShiftAdd", [](Operands& o) { return FixedShiftAdd(o, false); }},
      {"FixedShiftAdd, inverse", [](Operands& o) { return FixedShiftAdd(o, true); }},
  };
}

}  // namespace snug::bench
