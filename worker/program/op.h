// The ops that programs are made of, and the values between them.
#ifndef WORKER_PROGRAM_OP_H_
#define WORKER_PROGRAM_OP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "worker/program/model_config.h"
#include "worker/program/parameter.h"
#include "worker/program/patch_order.h"
#include "worker/program/relative_positions.h"
#include "worker/program/rows.h"

namespace snug::program {

// One line per op in op_table.h: operands, needs, in-place rules, work.
enum class OpCode : uint8_t {
  kEmbedding,       // token ids -> x
  kPatchEmbedding,  // patches -> x              x = p W^T + bias; a row of its own of a token that
                    //                           stands for no patch
  kNormalize,   // x -> xhat, r                  RMS: xhat = x * r, r = 1 / sqrt(mean(x^2) + eps)
                //                               of x less its mean where it is centred
  kAffine,      // xhat -> z                     z = xhat * gamma (+ beta)
  kRmsNorm,     // x -> z, r                     z = x * r * (offset + gamma), rounded but once
  kLinear,      // z -> y                        y = z W^T + bias
  kLoraDown,    // z -> za                       za = dropout(z) A^T, fp32; A: those of its modules
  kLoraLinear,  // z, za -> y                    y = z W^T + bias + scale * za B^T
  kLoraEmbedding,  // token ids, x -> y          y = x + scale * A[:, ids]^T B^T
  kRope,           // q -> q
  kAttention,      // q, k, v -> o, lse          within each document, or each part of an image's
                   //                            windows; a parameter has biases
  kGlu,            // g, u -> p                  p = activation(g) * u
  kActivation,     // x -> y                     y = activation(x)
  kDropout,        // x -> y
  kAdd,            // x, f -> y
  kHeadLoss,       // z[, za] -> (loss)               with gradient, dz in the same run
  kSelectRows,  // x -> y                        y[i] = x[index[i]], the batch's rising index of y's
                //                               rows: those that are trained, the last of documents
  kMergeRows,   // x -> y                        as many rows of x as y is wider lie in one of y
  kReorderRows,  // x -> y                       y[i] = x[index[i]], an index of each image's rows
  kMeanRows,     // x -> y                        the mean of each document's rows
  kToFixed,      // x -> v                        v = x to the nearest of DType::kFixed
  kFromFixed,    // v -> x
  kFixedAdd,  // v, f -> w                     w = v + f, f to the nearest: w - f is v, to the bit
  // In no program: a stash that holds x so is lowered to them.
  kQuantize,       // x -> codes                    rows of ranges, then rows of codes
  kDequantize,     // codes -> x
  kSampleRows,     // x -> sample                  some rows, and their places and weights
  kFixedSubtract,  // w, f -> v                 v = w - f: in no program, it undoes kFixedAdd
};
inline constexpr int kOpCodes = 27;

// An op draws random numbers of its own by its block and its place there, in 24 bits together.
inline constexpr int kOpBits = 12;
inline constexpr int64_t kMostOps = int64_t{1} << kOpBits;  // Of a block.
inline constexpr int64_t kMostBlocks = int64_t{1} << (24 - kOpBits);

inline constexpr int kMaxInputs = 4;
inline constexpr int kMaxOutputs = 2;
inline constexpr int kMaxOpParameters = 4;

struct Value {
  std::string site;   // Its name in its block: "norm1.xhat", "attention.q".
  int64_t width = 0;  // Elements per row.
  DType dtype = DType::kF32;
  bool companion = false;  // lse, r, za: kept whenever their op is not run again anyway.
  Rows rows = Rows::kTokens;
};

// What logits are held against: a class, whether each class is there, or a number for each.
enum class Loss : uint8_t { kCrossEntropy, kBinary, kSquare };

struct OpAttributes {
  int64_t heads = 0;     // kRope, kAttention
  int64_t kv_heads = 0;  // kAttention
  int64_t head_width = 0;
  int64_t rotary_width = 0;  // kRope: elements of a head that are turned; 0: all
  double epsilon = 0.0;      // kNormalize, kRmsNorm
  double scale = 0.0;        // Of an adapter: alpha / r; kAttention: of q . k; kEmbedding
  double table_scale = 1.0;  // kLoraEmbedding: kEmbedding's; kHeadLoss: of its matrix
  double dropout = 0.0;      // kLoraDown, kAttention, kDropout
  int64_t patch_width = 0;   // kPatchEmbedding: numbers of a patch
  int64_t za_column = 0;     // kLoraLinear: of za, which modules share, its first column
  int64_t rank = 0;          // ... and how many are its; kLoraEmbedding, kHeadLoss
  double smoothing = 0.0;    // kHeadLoss: of a class: the share that is spread over all of them
  double softcap = 0.0;     // kAttention, kHeadLoss: s becomes softcap * tanh(s / softcap); 0: none
  int64_t window = 0;       // kAttention: keys that a query sees, its own among them; 0: all
  double offset = 0.0;      // kRmsNorm
  bool bias = false;        // kLinear, kLoraLinear, kAffine, kHeadLoss: the last parameter
  bool centred = false;     // kNormalize
  bool causal = true;       // kAttention
  Distances distances;      // kAttention: that have biases
  PatchOrder order;         // kAttention: its windows; kReorderRows: of its result
  PatchOrder order_before;  // kReorderRows
  bool whole_documents = false;                               // kDropout: one draw for each
  Rows query_rows = Rows::kTokens, key_rows = Rows::kTokens;  // kAttention
  Ids ids = Ids::kTokens;                                     // kEmbedding
  int64_t row = 0;        // kLinear, kLoraLinear: of all its parameters, the first row that is its
  int64_t rows = 0;       // ... and how many are; 0: all; kHeadLoss: classes; 0: the vocabulary
  bool local = false;     // kRope: by the angles of layers that slide, where these have their own
  bool selected = false;  // kHeadLoss: every row of z is trained
  Loss loss = Loss::kCrossEntropy;                  // kHeadLoss
  Activation activation = Activation::kSilu;        // kGlu, kActivation
  Quantization quantization = Quantization::kNone;  // kLinear, kLoraLinear: of the weight
  int code_bits = 0;                                // kQuantize, kDequantize: of a code
  bool with_replacement = false;                    // kSampleRows
};

struct Op {
  OpCode code = OpCode::kAdd;
  std::string name;         // For messages: "self_attn.q_proj".
  std::vector<int> inputs;  // Values of the block.
  std::vector<int> outputs;
  std::vector<int> parameters;  // Slots: Block::parameters[slot] is the program's.
  OpAttributes attributes;
};

}  // namespace snug::program

#endif  // WORKER_PROGRAM_OP_H_
