// A tensor that a program reads and perhaps trains, and its keys in model and adapter files.
#ifndef WORKER_PROGRAM_PARAMETER_H_
#define WORKER_PROGRAM_PARAMETER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "worker/program/model_config.h"
#include "worker/program/training_mode.h"

namespace snug::program {

// Of a tied model one matrix, to which its files may give both names.
inline constexpr char kEmbeddingPath[] = "model.embed_tokens";  // The module.
inline constexpr char kEmbeddingKey[] = "model.embed_tokens.weight";
inline constexpr char kSharedKey[] = "shared.weight";  // Of an encoder-decoder both halves'.
inline constexpr char kHeadPath[] = "lm_head";
inline constexpr char kHeadKey[] = "lm_head.weight";

inline constexpr char kScorePath[] = "score";  // Of classes, in the place of lm_head.
inline constexpr char kScoreKey[] = "score.weight";
inline constexpr char kClassifierPath[] = "classifier";  // Of an encoder, in the place of score.

// "model.layers.3.", "bert.encoder.layer.3."; of an encoder-decoder "decoder.block.0."
std::string LayerPrefix(const ModelConfig& config, int64_t layer);
// The same of transformers' class, whose modules adapters name: "vit.layers.3."
std::string LayerModules(const ModelConfig& config, int64_t layer);
// The table of tokens, and other names that files may have for it.
std::vector<std::string> EmbeddingAliasesOf(const ModelConfig& config);
std::string EmbeddingKeyOf(const ModelConfig& config);
// The module that is the model's head: lm_head, score, classifier, cls.predictions.decoder.
std::string HeadPathOf(const ModelConfig& config);

// The module whose rows give the logits, and how many these are.
std::string HeadKeyOf(const ModelConfig& config);
int64_t HeadRowsOf(const ModelConfig& config);

struct Parameter {
  std::string key;              // As the file spells it: "model.layers.0.mlp.up_proj.weight".
  std::string module_key = {};  // As transformers' class does, where that is something else.
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;  // At which the worker holds it, or computes with it where quantised.
  Quantization quantization = Quantization::kNone;  // Its bytes are then ValueBytes.
  bool adapter = false;  // Comes from (or is drawn for) the adapter, not from the base model.
  bool saved = false;  // Of the base, but trained whole beside an adapter: PEFT's modules_to_save.
  bool trainable = false;
  bool decay = true;  // Weight decay applies (not to norms).
  // Updated in backward, behind which its gradient goes: of one block's backward alone.
  bool released = false;
  int64_t elements() const;
  int64_t bytes() const { return elements() * SizeOf(dtype); }
};

// Whether it has a row per token: the embedding, the head.
inline bool IsTable(const Parameter& p) {
  return p.key == kEmbeddingKey || p.key == kSharedKey || p.key == kHeadKey;
}

// A row per token, position or token type.
bool IsEmbedding(const Parameter& p);

// A new head, where the model's files have none; of an encoder a pooler that is trained, too.
bool IsDrawn(const ModelConfig& config, const Parameter& p);

// Drawn whatever the files have: of images their head has the classes of other ones.
bool ReplacesHead(const ModelConfig& config, const Parameter& p);

// Whether the optimizer changes an fp32 master, of which the value is a rounded copy.
inline bool HasMaster(const Parameter& p) { return p.trainable && p.dtype != DType::kF32; }

// Whether the base's files say all of it.
inline bool IsFrozen(const Parameter& p) { return !p.adapter && !p.trainable; }

inline constexpr char kAdapterPrefix[] = "base_model.model.";

// kAdapterPrefix + path + ".lora_A.weight" and the like; `path`: model.layers.0.self_attn.q_proj.
std::string AdapterKey(const std::string& module_path, bool up);

// As transformers' class spells it.
const std::string& ModuleKeyOf(const Parameter& parameter);

// The key of a parameter that an adapter's file holds: its own, and what is trained whole.
std::string AdapterFileKey(const Parameter& parameter);
inline bool InAdapterFile(const Parameter& p) { return p.adapter || p.saved; }

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PARAMETER_H_
