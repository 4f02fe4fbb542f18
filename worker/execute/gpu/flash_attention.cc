// q (N, H, D), k and v (N, Hkv, D) of documents behind one another; o (N, H, D). The logarithms of
// the sums are (H, N) here, where our own kernel has (N, H): the same bytes, and whichever op wrote
// them reads them again, since both ask program::FlashServes.
//
// Backward adds into dq with atomics: its last bits differ from run to run. ATen's deterministic
// way would take dq in fp32 several times over.
#include "worker/execute/gpu/flash_attention.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <optional>

#include "worker/execute/ops/ops.h"
#include "worker/program/flash_attention.h"

namespace snug::execute {
namespace {

c10::cuda::CUDAStream StreamOf(const OpRun& run) {
  return c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(run.stream()),
                                          c10::cuda::current_device());
}

at::Tensor OnDevice(const void* data, at::IntArrayRef shape, at::ScalarType type) {
  const at::Device device(at::kCUDA, c10::cuda::current_device());
  return at::for_blob(const_cast<void*>(data), shape)
      .options(at::TensorOptions(type).device(device))
      .target_device(device)
      .make_tensor();
}

// A view's rows by heads.
at::Tensor Heads(const View& view, int64_t heads, int64_t width) {
  return OnDevice(view.data, {view.rows, heads, width}, at::kBFloat16);
}

// What both directions are called with. ATen's work goes to the run's stream while it lives.
struct Call {
  explicit Call(const OpRun& run)
      : op(run.op->attributes),
        on_stream(StreamOf(run)),
        q(Heads(run.in[0], op.heads, op.head_width)),
        k(Heads(run.in[1], op.kv_heads, op.head_width)),
        v(Heads(run.in[2], op.kv_heads, op.head_width)),
        lse(OnDevice(run.out[1].data, {op.heads, run.in[0].rows}, at::kFloat)),
        offsets(OnDevice(run.batch->device_offsets32, {run.batch->documents + 1}, at::kInt)) {
    for (int64_t d = 0; d < run.batch->documents; ++d)
      longest = std::max(longest, run.batch->offsets[d + 1] - run.batch->offsets[d]);
    if (op.window > 0) window = op.window - 1;  // Theirs does not count the query itself.
  }

  const program::OpAttributes& op;
  const c10::InferenceMode no_autograd;
  const c10::cuda::CUDAStreamGuard on_stream;
  const at::Tensor q, k, v, lse, offsets;
  int64_t longest = 0;
  std::optional<int64_t> window;
};

void Give(const OpRun& run, const View& to, const at::Tensor& from) {
  if (to) run.Copy(to.data, from.data_ptr(), to.bytes());
}

bool Serves(const OpRun& run) {
  return run.batch->kv_cache == nullptr &&
         program::FlashServes(run.op->attributes, run.in[0].dtype);
}

void Forward(const OpRun& run) {
  if (!Serves(run)) return AttentionForward(run);
  const Call call(run);
  const auto [o, lse, state, unused, debug] = at::_flash_attention_forward(
      call.q, call.k, call.v, call.offsets, call.offsets, call.longest, call.longest,
      /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false, call.op.scale,
      call.window, /*window_size_right=*/0);
  Give(run, run.out[0], o);
  Give(run, run.out[1], lse);
}

void Backward(const OpRun& run) {
  if (!Serves(run)) return AttentionBackward(run);
  const Call call(run);
  const at::Tensor d_o = Heads(run.d_out[0], call.op.heads, call.op.head_width);
  const at::Tensor o = Heads(run.out[0], call.op.heads, call.op.head_width);
  const at::Tensor& state = call.offsets;  // Of dropout: not read without it.
  const auto [dq, dk, dv] = at::_flash_attention_backward(
      d_o, call.q, call.k, call.v, o, call.lse, call.offsets, call.offsets, call.longest,
      call.longest, /*dropout_p=*/0.0, /*is_causal=*/true, state, state, call.op.scale, call.window,
      /*window_size_right=*/0);
  Give(run, run.d_in[0], dq);  // Each may lie over q, k, v, which are read no more.
  Give(run, run.d_in[1], dk);
  Give(run, run.d_in[2], dv);
}

}  // namespace

const OpFunctionTable& OpFunctionsWithFlash() {
  static const OpFunctionTable kFunctions = [] {
    OpFunctionTable functions = OpFunctionsOfKernels();
    functions[static_cast<size_t>(program::OpCode::kAttention)] = {Forward, Backward};
    return functions;
  }();
  return kFunctions;
}

}  // namespace snug::execute
