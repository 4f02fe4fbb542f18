// What the executor hands to the function of an op, and the table from op codes to functions.
// Adding an op is a file in ops/ and a line in op_functions.cc.
#ifndef WORKER_EXECUTE_OP_RUN_H_
#define WORKER_EXECUTE_OP_RUN_H_

#include <array>
#include <cstdint>

#include "kernels/types.h"
#include "worker/execute/view.h"
#include "worker/program/program.h"
#include "worker/program/tape.h"

namespace snug::execute {

class Device;

inline constexpr int kMaxParameters = program::kMaxOpParameters;

// Operands by position, as program::Operands says; gradients have the shape of their value.
struct OpRun {
  const program::Op* op = nullptr;
  int block = 0;
  int op_index = 0;  // In its block: with `block`, the op's identity for dropout.
  std::array<View, program::kMaxInputs> in;
  std::array<View, program::kMaxOutputs> out;
  std::array<View, program::kMaxOutputs> d_out;
  std::array<View, program::kMaxInputs> d_in;
  int64_t first_row = 0;   // In a loop: of all rows, the first of this pass,
  int64_t rows = 0;        // and how many it has. An operand of other rows is there whole.
  uint8_t accumulate = 0;  // Bit i: d_in[i] is added into what is there.
  uint8_t begins = 0;      // Bit i: the gradient of parameter i begins: what is there is of no use.
  std::array<ParameterView, kMaxParameters> parameters;
  const Batch* batch = nullptr;
  StepScalars scalars;
  Device* device = nullptr;
  int stream_number = 0;

  bool adds(int input) const { return (accumulate >> input & 1) != 0; }
  bool adds_to_parameter(size_t i) const { return (begins >> i & 1) == 0; }
  // Zeros where the gradient of parameter i begins: for what can only add.
  void BeginGradient(size_t i) const;
  void BeginGradients(size_t first = 0) const;  // Of each parameter from there on.
  // What kernels are called with: null on the CPU.
  kernels::Stream stream() const;
  // On the run's stream.
  void Copy(void* to, const void* from, int64_t bytes) const;
  void Zero(const View& view) const;
};

// Functions issue work on the run's stream, and look at nothing in the device's memory themselves.
// They throw only what LibTorch and the allocator throw; the executor turns that into a Status.
struct OpFunctions {
  void (*forward)(const OpRun& run) = nullptr;
  void (*backward)(const OpRun& run) = nullptr;
};

using OpFunctionTable = std::array<OpFunctions, program::kOpCodes>;

// By OpCode, over our kernels, which run on every device.
const OpFunctionTable& OpFunctionsOfKernels();

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_OP_RUN_H_
