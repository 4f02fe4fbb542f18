// A frozen base in 4 or 8 bits (kernels/nf4.h, kernels/int8_weight.h): which matrices are, and the
// bytes that each takes. What the worker allocates and the daemon predicts are the same functions.
//
// As in QLoRA and bitsandbytes these are the weights of the linear modules in the layers. Head,
// embedding, norms, biases, and what is trained whole stay as they are.
//
// Files that are in codes already may leave modules out by name (ModelConfig::in_floats). Outside
// the layers (head, pooler, classifier) a module is in codes where the files have its codes
// (ModelConfig::outer_codes): versions of transformers differ in what they leave out there.
#ifndef WORKER_PROGRAM_QUANTIZATION_H_
#define WORKER_PROGRAM_QUANTIZATION_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "worker/program/program.h"

namespace snug::program {

// Marks the parameters, and the ops that read them: as the mode says, or as the model's files have
// them. InvalidArgument: the files have another kind, or the mode is one that changes such weights;
// naming the module, ops that share a fused matrix begin within a group of it that has one scale.
absl::Status Quantize(Program& program, const TrainingMode& mode);

// The name in ModelConfig::in_floats that leaves the weight out of the codes, as transformers reads
// such names: of the module, of its end, or of what it lies in. Null: none does.
const std::string* NameInFloats(const ModelConfig& config, const Parameter& weight);

// The parts of a quantised matrix in one piece of memory, by the byte at which each begins; the
// codes begin at 0. Each is rounded up to kAlignment.
struct QuantizedParts {
  int64_t absmax = 0;        // fp32: nf4 per group of blocks, int8 per row.
  int64_t absmax_codes = 0;  // Of nf4: 8 bits per block.
  int64_t offset = 0;        // Of nf4: one fp32.
  int64_t bytes = 0;         // Of all.
};
QuantizedParts PartsOf(const Parameter& parameter);

// Of the parameter's value, quantised or not, rounded up to kAlignment.
int64_t ValueBytes(const Parameter& parameter);

// Of n elements in nf4: bytes of codes, blocks that have a scale, groups of these that have one.
struct Nf4Sizes {
  int64_t code_bytes = 0, blocks = 0, groups = 0;
};
Nf4Sizes Nf4SizesOf(int64_t n);

// Elements of nf4 that share a scale, and blocks that share a scale of these: kernels::kNf4Block,
// kNf4Group.
inline constexpr int64_t kNf4BlockElements = 64, kNf4GroupBlocks = 256;

}  // namespace snug::program

#endif  // WORKER_PROGRAM_QUANTIZATION_H_
