// The decoder families as a program. So far: Llama 2 and 3 (RMSNorm before each half, rotary
// positions, SwiGLU), whose differences (grouped queries, head width, rope scaling, tied head) are
// all data of the ModelConfig.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/snug/status_macros.h"
#include "worker/program/program.h"

namespace snug::program {
namespace {

// A parameter of a block type before it is bound to a layer: the key's end, or the whole key of a
// parameter outside the layers.
struct ParameterSlot {
  std::string key;
  std::vector<int64_t> shape;
  bool adapter = false;
  bool up = false;  // Of an adapter: B, not A.
  bool norm = false;
};

constexpr int64_t kMaxRank = 8192;  // Above the width of most models an adapter saves nothing.

constexpr const char* kLinears[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                    "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                    "mlp.down_proj"};

// As PEFT matches a list of target modules: the whole path, or its end after a dot.
bool IsTarget(const std::string& path, const LoraConfig& lora) {
  for (const std::string& target : lora.target_modules) {
    if (target == "all-linear" || path == target || absl::EndsWith(path, "." + target)) return true;
  }
  return false;
}

std::string LayerPrefix(int64_t layer) { return absl::StrCat("model.layers.", layer, "."); }

// Which of kLinears get an adapter in a layer, as bits.
uint32_t AdaptedLinears(const TrainingMode& mode, int64_t layer) {
  uint32_t bits = 0;
  if (!mode.lora) return 0;
  for (size_t i = 0; i < std::size(kLinears); ++i) {
    if (IsTarget(LayerPrefix(layer) + kLinears[i], mode.adapter)) bits |= 1u << i;
  }
  return bits;
}

// Grows one block type op by op. Each method names the values it makes after `site`.
class BlockBuilder {
 public:
  BlockBuilder(std::string name, const ModelConfig& config, const TrainingMode& mode)
      : config_(config), mode_(mode) {
    type_.name = std::move(name);
  }

  int Input(int64_t width) { return type_.input = AddValue("input", width); }
  void Output(int value) { type_.output = value; }

  int Embedding() {
    const int x = AddValue("embedding", config_.width);
    const int slot = AddSlot({kEmbeddingKey, {config_.vocabulary, config_.width}});
    AddOp(OpCode::kEmbedding, "embed_tokens", {}, {x}, {slot});
    return x;
  }

  int RmsNorm(int x, const std::string& site, const std::string& weight) {
    const int xhat = AddValue(site + ".xhat", config_.width);
    const int r = AddValue(site + ".r", 1, DType::kF32, /*companion=*/true);
    AddOp(OpCode::kNormalize, site, {x}, {xhat, r}, {}).epsilon = config_.norm_epsilon;
    const int z = AddValue(site + ".out", config_.width);
    const int slot = AddSlot({weight, {config_.width}, false, false, /*norm=*/true});
    AddOp(OpCode::kAffine, site, {xhat}, {z}, {slot});
    return z;
  }

  int Linear(int z, int64_t out, const std::string& site, const std::string& path, bool adapted) {
    const int64_t in = type_.values[z].width;
    const int weight = AddSlot({path + ".weight", {out, in}});
    if (!adapted) {
      const int y = AddValue(site, out);
      AddOp(OpCode::kLinear, path, {z}, {y}, {weight});
      return y;
    }
    const int64_t rank = mode_.adapter.rank;
    const int za = AddValue(site + ".za", rank, DType::kF32, /*companion=*/true);
    const int a = AddSlot({path, {rank, in}, /*adapter=*/true, /*up=*/false});
    AddOp(OpCode::kLoraDown, path, {z}, {za}, {a}).dropout = mode_.adapter.dropout;
    const int y = AddValue(site, out);
    const int b = AddSlot({path, {out, rank}, /*adapter=*/true, /*up=*/true});
    AddOp(OpCode::kLoraLinear, path, {z, za}, {y}, {weight, b}).scale = mode_.adapter.scale();
    return y;
  }

  int Rope(int q, int64_t heads, const std::string& site) {
    const int y = AddValue(site, type_.values[q].width);
    OpAttributes& attributes = AddOp(OpCode::kRope, site, {q}, {y}, {});
    attributes.heads = heads;
    attributes.head_width = config_.head_width;
    return y;
  }

  int Attention(int q, int k, int v) {
    const int o = AddValue("attention.out", type_.values[q].width);
    const int lse = AddValue("attention.lse", config_.heads, DType::kF32, /*companion=*/true);
    OpAttributes& attributes = AddOp(OpCode::kAttention, "attention", {q, k, v}, {o, lse}, {});
    attributes.heads = config_.heads;
    attributes.kv_heads = config_.kv_heads;
    attributes.head_width = config_.head_width;
    attributes.scale = 1.0 / std::sqrt(static_cast<double>(config_.head_width));
    return o;
  }

  int SwiGlu(int g, int u) {
    const int p = AddValue("mlp.act", type_.values[g].width);
    AddOp(OpCode::kSwiGlu, "mlp.act", {g, u}, {p}, {});
    return p;
  }

  int Add(int x, int f, const std::string& site) {
    const int y = AddValue(site, type_.values[x].width);
    AddOp(OpCode::kAdd, site, {x, f}, {y}, {});
    return y;
  }

  void HeadLoss(int z) {
    const std::string key = config_.tied_embeddings ? kEmbeddingKey : kHeadKey;
    const int slot = AddSlot({key, {config_.vocabulary, config_.width}});
    AddOp(OpCode::kHeadLoss, "lm_head", {z}, {}, {slot});
  }

  BlockType TakeType() {
    type_.parameter_slots = static_cast<int>(slots_.size());
    return std::move(type_);
  }
  const std::vector<ParameterSlot>& slots() const { return slots_; }

 private:
  int AddValue(std::string site, int64_t width) {
    return AddValue(std::move(site), width, mode_.compute, false);
  }
  int AddValue(std::string site, int64_t width, DType dtype, bool companion) {
    type_.values.push_back({std::move(site), width, dtype, companion});
    return static_cast<int>(type_.values.size()) - 1;
  }
  int AddSlot(ParameterSlot slot) {
    slots_.push_back(std::move(slot));
    return static_cast<int>(slots_.size()) - 1;
  }
  OpAttributes& AddOp(OpCode code, std::string name, std::vector<int> inputs,
                      std::vector<int> outputs, std::vector<int> parameters) {
    type_.ops.push_back({code, std::move(name), std::move(inputs), std::move(outputs),
                         std::move(parameters), OpAttributes{}});
    return type_.ops.back().attributes;
  }

  const ModelConfig& config_;
  const TrainingMode& mode_;
  BlockType type_;
  std::vector<ParameterSlot> slots_;
};

void DecoderBlock(BlockBuilder& b, const ModelConfig& m, uint32_t adapted) {
  const auto lora = [adapted](int linear) { return (adapted >> linear & 1) != 0; };
  const int64_t q_width = m.heads * m.head_width, kv_width = m.kv_heads * m.head_width;
  int x = b.Input(m.width);
  int h = b.RmsNorm(x, "norm1", "input_layernorm.weight");
  int q = b.Linear(h, q_width, "attention.q_proj", kLinears[0], lora(0));
  int k = b.Linear(h, kv_width, "attention.k_proj", kLinears[1], lora(1));
  const int v = b.Linear(h, kv_width, "attention.v", kLinears[2], lora(2));
  q = b.Rope(q, m.heads, "attention.q");
  k = b.Rope(k, m.kv_heads, "attention.k");
  const int o = b.Attention(q, k, v);
  x = b.Add(x, b.Linear(o, m.width, "attention.o_proj", kLinears[3], lora(3)), "residual");
  h = b.RmsNorm(x, "norm2", "post_attention_layernorm.weight");
  const int g = b.Linear(h, m.mlp_width, "mlp.gate", kLinears[4], lora(4));
  const int u = b.Linear(h, m.mlp_width, "mlp.up", kLinears[5], lora(5));
  const int p = b.SwiGlu(g, u);
  b.Output(b.Add(x, b.Linear(p, m.width, "mlp.down", kLinears[6], lora(6)), "output"));
}

// Binds block types to layers and collects the parameters, each key once.
class ProgramBuilder {
 public:
  ProgramBuilder(const ModelConfig& config, const TrainingMode& mode) : mode_(mode) {
    program_.config = config;
    program_.compute = mode.compute;
  }

  int AddType(BlockBuilder& builder) {
    slots_.push_back(builder.slots());
    program_.types.push_back(builder.TakeType());
    return static_cast<int>(program_.types.size()) - 1;
  }

  void AddBlock(int type, int layer) {
    Block block{.type = type, .layer = layer, .parameters = {}};
    for (const ParameterSlot& slot : slots_[type]) block.parameters.push_back(Bind(slot, layer));
    program_.blocks.push_back(std::move(block));
  }

  Program Take() { return std::move(program_); }

 private:
  int Bind(const ParameterSlot& slot, int layer) {
    std::string key = layer < 0 ? slot.key : LayerPrefix(layer) + slot.key;
    if (slot.adapter) key = AdapterKey(key, slot.up);
    const auto [it, inserted] =
        index_.try_emplace(key, static_cast<int>(program_.parameters.size()));
    if (inserted) {
      const bool trainable = slot.adapter || !mode_.lora;
      program_.parameters.push_back({.key = key,
                                     .shape = slot.shape,
                                     .dtype = slot.adapter ? DType::kF32 : mode_.compute,
                                     .adapter = slot.adapter,
                                     .trainable = trainable,
                                     .decay = !slot.norm});
    }
    return it->second;
  }

  const TrainingMode& mode_;
  Program program_;
  std::vector<std::vector<ParameterSlot>> slots_;
  std::map<std::string, int> index_;
};

absl::Status CheckMode(const ModelConfig& config, const TrainingMode& mode) {
  if (!mode.lora) return absl::OkStatus();
  const LoraConfig& lora = mode.adapter;
  if (lora.rank < 1 || lora.rank > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("lora.r: ", lora.rank, " is not in [1, ", kMaxRank, "]"));
  }
  for (const std::string& target : lora.target_modules) {
    LoraConfig one;
    one.target_modules = {target};
    bool found = false;
    for (int64_t layer = 0; layer < config.layers && !found; ++layer) {
      for (const char* linear : kLinears) found |= IsTarget(LayerPrefix(layer) + linear, one);
    }
    if (!found) {
      return absl::InvalidArgumentError(
          absl::StrCat("lora.target_modules: no module '", target, "'; this model has ",
                       absl::StrJoin(kLinears, ", "), " (or all-linear)"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Program> BuildProgram(const ModelConfig& config, const TrainingMode& mode) {
  RETURN_IF_ERROR(CheckMode(config, mode));
  ProgramBuilder program(config, mode);
  BlockBuilder embedding("embedding", config, mode);
  embedding.Output(embedding.Embedding());
  program.AddBlock(program.AddType(embedding), -1);
  std::map<uint32_t, int> decoder_types;  // By the set of adapted linears.
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const uint32_t adapted = AdaptedLinears(mode, layer);
    if (!decoder_types.contains(adapted)) {
      BlockBuilder decoder("decoder", config, mode);
      DecoderBlock(decoder, config, adapted);
      decoder_types[adapted] = program.AddType(decoder);
    }
    program.AddBlock(decoder_types[adapted], static_cast<int>(layer));
  }
  BlockBuilder head("head", config, mode);
  head.HeadLoss(head.RmsNorm(head.Input(config.width), "norm", "model.norm.weight"));
  program.AddBlock(program.AddType(head), -1);
  return program.Take();
}

}  // namespace snug::program
