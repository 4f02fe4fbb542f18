// A model family's training step as data: values, ops and parameters, block by block. Knows no
// device, no batch and no plan.
//
// Every value has one row per token of the micro-batch; rows of all documents lie behind one
// another. A block reads one value, its input, and gives one, its output; blocks of one type share
// their description and differ in the parameters they are bound to.
#ifndef WORKER_PROGRAM_PROGRAM_H_
#define WORKER_PROGRAM_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/lora_config.h"
#include "worker/program/model_config.h"

namespace snug::program {

// One line per op in op_table.h: operands, needs, in-place rules, work.
enum class OpCode : uint8_t {
  kEmbedding,   // token ids -> x
  kNormalize,   // x -> xhat, r                  RMS: xhat = x * r, r = 1 / sqrt(mean(x^2) + eps)
  kAffine,      // xhat -> z                     z = xhat * gamma
  kRmsNorm,     // x -> z, r                     z = x * r * (offset + gamma), rounded but once
  kLinear,      // z -> y                        y = z W^T + bias
  kLoraDown,    // z -> za                       za = dropout(z) A^T, fp32; A: those of its modules
  kLoraLinear,  // z, za -> y                    y = z W^T + bias + scale * za B^T
  kLoraEmbedding,  // token ids, x -> y          y = x + scale * A[:, ids]^T B^T
  kRope,           // q -> q
  kAttention,      // q, k, v -> o, lse          causal, within each document
  kGlu,            // g, u -> p                  p = activation(g) * u
  kAdd,            // x, f -> y
  kHeadLoss,  // z[, za] -> (loss)               chunks of rows; with gradient, dz in the same pass
};
inline constexpr int kOpCodes = 13;

struct Value {
  std::string site;   // Its name in its block: "norm1.xhat", "attention.q".
  int64_t width = 0;  // Elements per token.
  DType dtype = DType::kF32;
  bool companion = false;  // lse, r, za: kept whenever their op is not run again anyway.
};

// Of a tied model one matrix, to which its files may give both names.
inline constexpr char kEmbeddingPath[] = "model.embed_tokens";  // The module.
inline constexpr char kEmbeddingKey[] = "model.embed_tokens.weight";
inline constexpr char kHeadPath[] = "lm_head";
inline constexpr char kHeadKey[] = "lm_head.weight";

// A tensor that the program reads and perhaps trains.
struct Parameter {
  std::string key;  // As the file spells it: "model.layers.0.mlp.up_proj.weight".
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;  // At which the worker holds it.
  bool adapter = false;       // Comes from (or is drawn for) the adapter, not from the base model.
  bool saved = false;  // Of the base, but trained whole beside an adapter: PEFT's modules_to_save.
  bool trainable = false;
  bool decay = true;  // Weight decay applies (not to norms).
  int64_t elements() const;
  int64_t bytes() const { return elements() * SizeOf(dtype); }
};

struct OpAttributes {
  int64_t heads = 0;     // kRope, kAttention
  int64_t kv_heads = 0;  // kAttention
  int64_t head_width = 0;
  int64_t rotary_width = 0;  // kRope: elements of a head that are turned; 0: all
  double epsilon = 0.0;      // kNormalize, kRmsNorm
  double scale = 0.0;        // Of an adapter: alpha / r; kAttention: of q . k; kEmbedding
  double table_scale = 1.0;  // kLoraEmbedding: kEmbedding's
  double dropout = 0.0;      // kLoraDown, kAttention
  int64_t za_column = 0;     // kLoraLinear: of za, which modules share, its first column
  int64_t rank = 0;          // ... and how many are its; kLoraEmbedding, kHeadLoss
  double softcap = 0.0;  // kAttention, kHeadLoss: s becomes softcap * tanh(s / softcap); 0: none
  int64_t window = 0;    // kAttention: keys that a query sees, its own among them; 0: all
  double offset = 0.0;   // kRmsNorm
  bool bias = false;     // kLinear, kLoraLinear: the last parameter
  int64_t row = 0;       // kLinear, kLoraLinear: of all its parameters, the first row that is its
  int64_t rows = 0;      // ... and how many are; 0: all
  bool local = false;    // kRope: by the angles of layers that slide, where these have their own
  Activation activation = Activation::kSilu;  // kGlu
};

struct Op {
  OpCode code = OpCode::kAdd;
  std::string name;         // For messages: "self_attn.q_proj".
  std::vector<int> inputs;  // Values of the block.
  std::vector<int> outputs;
  std::vector<int> parameters;  // Slots: Block::parameters[slot] is the program's.
  OpAttributes attributes;
};

struct BlockType {
  std::string name;  // "embedding", "decoder", "head"
  std::vector<Value> values;
  std::vector<Op> ops;  // In the order in which they run.
  int parameter_slots = 0;
  int input = -1;   // -1: the batch only.
  int output = -1;  // -1: the loss.
};

struct Block {
  int type = 0;
  int layer = -1;               // Of a decoder block.
  std::vector<int> parameters;  // Indices into Program::parameters.
};

struct Program {
  ModelConfig config;
  DType compute = DType::kF32;  // Of activations and frozen weights.
  std::vector<BlockType> types;
  std::vector<Block> blocks;  // Embedding, decoder blocks 0 .. L-1, head.
  std::vector<Parameter> parameters;

  const BlockType& type_of(int block) const { return types[blocks[block].type]; }
  int first_layer_block() const { return 1; }
};

// Whether it has a row per token: the embedding, the head.
inline bool IsTable(const Parameter& p) { return p.key == kEmbeddingKey || p.key == kHeadKey; }

// Whether the optimizer changes an fp32 master, of which the value is a rounded copy.
inline bool HasMaster(const Parameter& p) { return p.trainable && p.dtype != DType::kF32; }

struct TrainingMode {
  bool lora = false;  // An adapter beside a frozen base; else all of it.
  LoraConfig adapter;
  DType compute = DType::kF32;
};

// The program of a model family. Errors: target modules that the model does not have.
absl::StatusOr<Program> BuildProgram(const ModelConfig& config, const TrainingMode& mode);

inline constexpr char kAdapterPrefix[] = "base_model.model.";

// kAdapterPrefix + path + ".lora_A.weight" and the like; `path`: model.layers.0.self_attn.q_proj.
std::string AdapterKey(const std::string& module_path, bool up);

// The key of a parameter that an adapter's file holds: its own, and what is trained whole.
std::string AdapterFileKey(const Parameter& parameter);
inline bool InAdapterFile(const Parameter& p) { return p.adapter || p.saved; }
bool SavesEmbedding(const Program& program);  // Where it is tied, the head with it.

// Whether blocks[0 .. block] train anything: then the gradient of the block's output is wanted.
std::vector<bool> OutputGradientWanted(const Program& program);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PROGRAM_H_
