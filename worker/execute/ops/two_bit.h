// What ops of activations hold of their input for backward where a plan says two_bit: one matrix of
// bytes (program::FormOf), all rows of the activation itself where that is held too, then all rows'
// codes (kernels/codes.h).
#ifndef WORKER_EXECUTE_OPS_TWO_BIT_H_
#define WORKER_EXECUTE_OPS_TWO_BIT_H_

#include "kernels/activation.h"
#include "worker/execute/op_run.h"
#include "worker/program/stash.h"

namespace snug::execute {

static_assert(program::TwoBitRowBytes(257) == kernels::CodeBytes(257));

struct TwoBitForm {
  void* activation = nullptr;
  uint8_t* codes = nullptr;
  int64_t code_stride = 0;
};

// The form of an input of `width` elements a row; absent where `form` is.
inline TwoBitForm TwoBitFormIn(const View& form, int64_t width) {
  if (!form) return {};
  const int64_t stride = kernels::CodeBytes(width);
  const int64_t activation_bytes = form.bytes() - form.rows * stride;
  return {activation_bytes > 0 ? form.data : nullptr, form.as<uint8_t>() + activation_bytes,
          stride};
}

// Whether a backward was handed the form in the place of its input.
inline bool IsTwoBitForm(const View& input) { return input.dtype == program::DType::kU8; }

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_OPS_TWO_BIT_H_
