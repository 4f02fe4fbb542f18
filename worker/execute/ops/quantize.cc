// What writes and reads a stash of codes. A form is one matrix of bytes: all rows' ranges, then all
// rows' codes, for as many rows as the batch has (program::CodedRowBytes).
#include "kernels/quantize.h"

#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"
#include "worker/program/stash.h"

namespace snug::execute {
namespace {

using kernels::CodeBits;

constexpr int64_t KernelRowBytes(int64_t width, CodeBits bits) {
  return kernels::RangeBlocks(width) * int64_t{sizeof(kernels::Range16)} +
         kernels::CodeBytes(width, bits);
}
static_assert(program::CodedRowBytes(300, 8) == KernelRowBytes(300, CodeBits::k8));
static_assert(program::CodedRowBytes(257, 4) == KernelRowBytes(257, CodeBits::k4));

// The form that holds values of `width`.
kernels::Quantized CodesIn(const View& form, int64_t width, int bits) {
  kernels::Quantized codes;
  codes.bits = bits == 8 ? CodeBits::k8 : CodeBits::k4;
  codes.ranges = form.data;
  codes.codes =
      form.as<char>() + form.rows * kernels::RangeBlocks(width) * int64_t{sizeof(kernels::Range16)};
  codes.codes_stride = kernels::CodeBytes(width, codes.bits);
  return codes;
}

}  // namespace

void QuantizeForward(const OpRun& run) {
  const View& x = run.in[0];
  Check("Quantize",
        kernels::Quantize({.x = x.data,
                           .to = CodesIn(run.out[0], x.width, run.op->attributes.code_bits),
                           .N = x.rows,
                           .C = x.width,
                           .x_stride = x.width,
                           .dtype = KernelType(x),
                           .dither = {.site = StashSiteOf(run)}},
                          run.stream()));
}

void DequantizeForward(const OpRun& run) {
  const View& y = run.out[0];
  Check("Dequantize",
        kernels::Dequantize({.from = CodesIn(run.in[0], y.width, run.op->attributes.code_bits),
                             .y = y.data,
                             .N = y.rows,
                             .C = y.width,
                             .y_stride = y.width,
                             .dtype = KernelType(y)},
                            run.stream()));
}

}  // namespace snug::execute
