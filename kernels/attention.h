// Attention of each document by itself: query i of a document sees the keys up to its own position,
// or all of them where it is not causal, in blocks, so that cost follows what is visible and no
// scores of T x T elements ever exist.
//
//   position(i) = keys - queries + i      the last query stands at the last key
//   s[i,j] = scale * q[i] . k[j]          then, with a softcap, softcap * tanh(s / softcap);
//             then, with a bias, + bias[h, clamp(origin + position(i) - j, 0, B - 1)]
//             or, with a pitch, + bias[h, origin + p(i) - p(j)]   p(r) = (r / c) pitch + r mod c
//   visible: position(i) - window < j <= position(i)      (window 0: all j <= position(i);
//                                                          not causal: all j)
//   lse[i] = log sum_j exp(s[i,j])        p[i,j] = exp(s[i,j] - lse[i])      o[i] = sum_j m p v[j]
//   m[i,j] = 0 with probability `dropout`, else 1 / (1 - dropout)
//   backward (Dao et al. 2022, alg. 4), delta[i] = do[i] . o[i], p from s and lse again, at most
//   1: q and k may come from codes by then, of which lse is not:
//   dv[j] = sum_i m p do[i]    ds[i,j] = p (m do[i] . v[j] - delta[i]) (1 - tanh^2)
//   dq[i] = scale sum_j ds k[j]           dk[j] = scale sum_i ds q[i]
//   dbias[h,b] += sum of ds before (1 - tanh^2) over the pairs i, j that entry b was added to
//
// The bias, and what it may be: kernels/attention_bias.h.
//
// Query head h reads key head h / (heads / kv_heads); keys and values are never copied per head.
// Sums and softmax are fp32 for bf16 and fp16 as well. Operands of the products become fp32 too,
// or, where the CPU multiplies bf16, p and ds are rounded to bf16 for them. Products use fused
// multiply-adds where the machine has them, so another instruction set gives other last bits;
// another number of threads does not.
//
// m is drawn again whenever it is needed, as in kernels/dropout.h: key j of query row i (of q) and
// head h is column j of row i * heads + h of a matrix as wide as the longest document's keys.
//
// Which path serves what:
//   op       | device | packed, groups, masks  | window | softcap | dropout | bias | queries < keys
//   forward  | CPU    | this op                | same   | same    | same    | same | same
//   backward | CPU    | this op                | same   | same    | same    | same | same
//   forward  | CUDA   | this op, D <= 256      | same   | same    | same    | same | same
//   backward | CUDA   | this op, D <= 256      | same   | same    | same    | same | same
// (a pitch only where all keys are seen, by as many queries), in fp32, bf16 and fp16. On CUDA the
// worker calls ATen's flash kernels instead where these serve bf16
// (worker/program/flash_attention.h).
#ifndef KERNELS_ATTENTION_H_
#define KERNELS_ATTENTION_H_

#include <cstdint>

#include "kernels/attention_bias.h"
#include "kernels/philox.h"
#include "kernels/types.h"

namespace snug::kernels {

struct AttentionShape {
  int64_t heads = 0, kv_heads = 0;  // H, a multiple of Hkv.
  int64_t D = 0;                    // Head width.
  int64_t documents = 0;
  const int64_t* query_offsets = nullptr;  // (documents + 1), rows of q where each begins, from 0.
  // Rows of k and v where each document begins, and how many it has: where it is causal or has a
  // bias, no fewer than queries; else one at least. Null: keys lie in the same rows as queries.
  const int64_t* key_begins = nullptr;  // (documents)
  const int64_t* key_counts = nullptr;  // (documents)
  // Of a call on a stream: copies of these arrays that kernels can read. The three above are read
  // by the host in any case.
  const int64_t* device_query_offsets = nullptr;
  const int64_t* device_key_begins = nullptr;
  const int64_t* device_key_counts = nullptr;
  int64_t window = 0;    // >= 0
  bool causal = true;    // Without it: no window.
  float scale = 1.0f;    // > 0
  float softcap = 0.0f;  // >= 0
  double dropout = 0.0;  // [0, 1)
  RandomSite site;       // With dropout.
  AttentionBias bias;
  DType dtype = DType::kF32;
};

// What the ops take from their workspace follows from these. Larger sizes never need less.
struct AttentionSizes {
  int64_t tokens = 0;     // Rows of q,
  int64_t key_rows = 0;   // and of k, if there are more.
  int64_t documents = 0;  // Not empty ones, or more; with bias_entries all.
  int64_t longest_queries = 0, longest_keys = 0;
  int64_t heads = 0, kv_heads = 0, D = 0;
  int64_t threads = 1;        // On the CPU.
  DType dtype = DType::kF32;  // On a stream.
  // B, for a backward that gives the bias' gradient; SizesOf leaves it 0.
  int64_t bias_entries = 0;
  bool causal = true;
  bool grids = false;                               // The bias has a pitch.
  int64_t sides() const { return causal ? 1 : 2; }  // Of a query, on which it has keys.
};
AttentionSizes SizesOf(const AttentionShape& shape, int64_t threads);
// On the CPU. A bias' gradient takes (H, min(sides * K, documents * B)) of fp32, rounded up, K
// being the rows of k; of grids (H, documents * B).
int64_t AttentionForwardBytes(const AttentionSizes& sizes);
int64_t AttentionBackwardBytes(const AttentionSizes& sizes);
// On a stream: delta (N, H) in fp32, and room for dq (N, H*D), each rounded up to 64 bytes; a bias'
// gradient takes (sides * (K / 64) + 2 * documents, H, 128) more, of grids (documents, H, B).
// Forward takes nothing there.
int64_t AttentionBackwardStreamBytes(const AttentionSizes& sizes);
// On a stream: what rows are divided into, the largest D, and the most keys of a document.
inline constexpr int64_t kStreamTile = 64;
inline constexpr int64_t kMaxStreamHeadWidth = 256, kMaxStreamKeys = int64_t{1} << 30;

// Products: 4 * D operations for each visible pair and head.
struct AttentionForwardParams {
  AttentionShape shape;
  const void* q = nullptr;  // (N, H*D), dtype
  const void* k = nullptr;  // (keys, Hkv*D), dtype
  const void* v = nullptr;  // (keys, Hkv*D), dtype
  void* o = nullptr;        // (N, H*D), dtype
  float* lse = nullptr;     // (N, H), fp32
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, o_stride = 0, lse_stride = 0;
  // On the CPU: as many threads work as it has room for, one at least. Not read on a stream.
  float* workspace = nullptr;
  int64_t workspace_bytes = 0;  // >= AttentionForwardBytes for one thread.
};
Error AttentionForward(const AttentionForwardParams& p, Stream stream);

// dq may be q, dk may be k, dv may be v. Keys that no query sees get 0, rows of no document
// nothing; without any query nothing is written. 10 * D operations for each visible pair and head;
// on a stream 14 * D, and 4 * D more with d_bias.
struct AttentionBackwardParams {
  AttentionShape shape;        // Documents' keys, if apart: in order, none in common.
  const void* dO = nullptr;    // (N, H*D), dtype
  const void* q = nullptr;     // (N, H*D), dtype
  const void* k = nullptr;     // (keys, Hkv*D), dtype
  const void* v = nullptr;     // (keys, Hkv*D), dtype
  const void* o = nullptr;     // (N, H*D), dtype: what forward wrote
  const float* lse = nullptr;  // (N, H): what forward wrote
  void* dq = nullptr;          // (N, H*D), dtype, or null
  void* dk = nullptr;          // (keys, Hkv*D), dtype, or null
  void* dv = nullptr;          // (keys, Hkv*D), dtype, or null
  float* d_bias = nullptr;     // (H, B), fp32: += the bias' gradient; or null
  int64_t dO_stride = 0, q_stride = 0, k_stride = 0, v_stride = 0, o_stride = 0, lse_stride = 0;
  int64_t dq_stride = 0, dk_stride = 0, dv_stride = 0, d_bias_stride = 0;
  float* workspace = nullptr;   // On a stream: where kernels can use it.
  int64_t workspace_bytes = 0;  // >= AttentionBackwardBytes for one thread, or ..StreamBytes.
};
Error AttentionBackward(const AttentionBackwardParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_ATTENTION_H_
