// A model family's training step as data: values, ops and parameters, block by block. Knows no
// device, no batch and no plan.
//
// A value is a matrix: its rows are those of the micro-batch's tokens, documents, ... (Rows), all
// documents behind one another. Blocks of one type share their description and differ in the
// parameters that they are bound to and in the values that they are handed: a block reads values of
// blocks before it, its inputs, and gives some to those behind it, its outputs.
#ifndef WORKER_PROGRAM_PROGRAM_H_
#define WORKER_PROGRAM_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/model_config.h"
#include "worker/program/op.h"
#include "worker/program/parameter.h"
#include "worker/program/training_mode.h"

namespace snug::program {

struct BlockType {
  std::string name;  // "embedding", "decoder" or "encoder", "head"
  std::vector<Value> values;
  std::vector<Op> ops;  // In the order in which they run.
  int parameter_slots = 0;
  // Values that the block is handed, and those that it gives to others.
  std::vector<int> inputs, outputs;
};

struct Block {
  int type = 0;
  int layer = -1;               // Of a decoder or encoder block.
  std::vector<int> parameters;  // Indices into Program::parameters.
  // Borders: numbers that stand for the values between blocks. One block gives a border, any number
  // of later ones read it.
  std::vector<int> inputs, outputs;
};

struct Program {
  ModelConfig config;
  DType compute = DType::kF32;  // Of activations and frozen weights.
  MomentKind moments = MomentKind::kF32;
  bool optimizer_on_host = false;  // TrainingMode's.
  std::vector<BlockType> types;
  std::vector<Block> blocks;  // Embedding, layers 0 .. L-1, head.
  int borders = 0;
  std::vector<Parameter> parameters;

  const BlockType& type_of(int block) const { return types[blocks[block].type]; }
};

// The program of a model family. Errors: target modules that the model does not have.
absl::StatusOr<Program> BuildProgram(const ModelConfig& config, const TrainingMode& mode);

bool SavesEmbedding(const Program& program);  // Where it is tied, the head with it.

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PROGRAM_H_
