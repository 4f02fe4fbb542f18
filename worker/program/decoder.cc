// The decoder families as one program: RMSNorm before each half, rotary positions, causal
// attention, a gated MLP. What sets a family apart (worker/program/families) is data of the
// ModelConfig; block types differ by what is adapted in their layers and by whether these slide.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/snug/status_macros.h"
#include "worker/program/block_builder.h"
#include "worker/program/encoder.h"
#include "worker/program/encoder_decoder.h"
#include "worker/program/lora_targets.h"
#include "worker/program/program.h"
#include "worker/program/program_builder.h"
#include "worker/program/quantization.h"

namespace snug::program {
namespace {

// What the layers of one block type share.
struct Layer {
  const ModelConfig& config;
  bool sliding;
};

std::vector<LinearModule> AttentionInputs(const ModelConfig& m) {
  const int64_t q_width = m.heads * m.head_width, kv_width = m.kv_heads * m.head_width;
  const LinearModule::Result q = {"attention.q_proj", q_width}, k = {"attention.k_proj", kv_width},
                             v = {"attention.v", kv_width};
  if (m.fused_projections) return {{"self_attn.qkv_proj", {q, k, v}, m.qkv_bias}};
  return {{"self_attn.q_proj", {q}, m.qkv_bias},
          {"self_attn.k_proj", {k}, m.qkv_bias},
          {"self_attn.v_proj", {v}, m.qkv_bias}};
}

std::vector<LinearModule> MlpInputs(const ModelConfig& m) {
  const LinearModule::Result gate = {"mlp.gate", m.mlp_width}, up = {"mlp.up", m.mlp_width};
  if (m.fused_projections) return {{"mlp.gate_up_proj", {gate, up}, m.mlp_bias}};
  return {{"mlp.gate_proj", {gate}, m.mlp_bias}, {"mlp.up_proj", {up}, m.mlp_bias}};
}

// Of q or k: normalised head by head where the family does that, then turned.
int Turned(BlockBuilder& b, int x, const std::string& name, int64_t heads, const Layer& layer) {
  const ModelConfig& m = layer.config;
  if (m.head_norms) {
    const std::string module = absl::StrCat(name, "_norm");
    x = b.RmsNorm(x, absl::StrCat("attention.", module),
                  absl::StrCat("self_attn.", module, ".weight"), heads);
  }
  const bool local = layer.sliding && m.local_rope_theta > 0.0;
  return b.Rope(x, heads, local, absl::StrCat("attention.", name));
}

int AttentionHalf(BlockBuilder& b, int x, const Layer& layer) {
  const ModelConfig& m = layer.config;
  const int h = b.RmsNorm(x, "norm1", "input_layernorm.weight");
  const std::vector<int> qkv = b.Linears(h, AttentionInputs(m));
  const int q = Turned(b, qkv[0], "q", m.heads, layer);
  const int k = Turned(b, qkv[1], "k", m.kv_heads, layer);
  const int o = b.Attention(q, k, qkv[2], layer.sliding ? m.window : 0);
  const int f = b.Linear(o, {"self_attn.o_proj", {{"attention.o_proj", m.width}}, m.output_bias});
  return m.post_norms ? b.RmsNorm(f, "post_norm1", "post_attention_layernorm.weight") : f;
}

int MlpHalf(BlockBuilder& b, int x, const ModelConfig& m) {
  const int h = b.RmsNorm(
      x, "norm2",
      m.post_norms ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight");
  const std::vector<int> gate_up = b.Linears(h, MlpInputs(m));
  const int p = b.Glu(gate_up[0], gate_up[1]);
  const int f = b.Linear(p, {"mlp.down_proj", {{"mlp.down", m.width}}, m.mlp_bias});
  return m.post_norms ? b.RmsNorm(f, "post_norm2", "post_feedforward_layernorm.weight") : f;
}

// Two streams, to each of which a half adds what it makes of the other (Gomez et al. 2017; RevViT).
void ReversibleBlock(BlockBuilder& b, const Layer& layer) {
  const int x1 = b.FixedInput(layer.config.width, "input1");
  const int x2 = b.FixedInput(layer.config.width, "input2");
  const int f = AttentionHalf(b, b.FromFixed(x2, "attention.input"), layer);
  const int y1 = b.FixedAdd(x1, f, "output1");
  const int g = MlpHalf(b, b.FromFixed(y1, "mlp.input"), layer.config);
  b.Output(y1);
  b.Output(b.FixedAdd(x2, g, "output2"));
}

void DecoderBlock(BlockBuilder& b, const Layer& layer) {
  if (layer.config.reversible) return ReversibleBlock(b, layer);
  int x = b.Input(layer.config.width);
  x = b.Add(x, AttentionHalf(b, x, layer), "residual");
  b.Output(b.Add(x, MlpHalf(b, x, layer.config), "output"));
}

// All modules of the model, as they run.
std::vector<Module> ModulesOf(const ModelConfig& config) {
  const TrainingMode full;
  BlockBuilder plain("decoder", config, full);
  DecoderBlock(plain, {config, /*sliding=*/false});
  std::vector<Module> modules = {{ModulePath(kEmbeddingKey), Module::Kind::kEmbedding}};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (const ParameterSlot& slot : plain.slots()) {
      if (!absl::EndsWith(slot.key, ".weight")) continue;
      modules.push_back({LayerPrefix(config, layer) + ModulePath(slot.key),
                         slot.decay ? Module::Kind::kLinear : Module::Kind::kNorm});
    }
  }
  modules.push_back({"model.norm", Module::Kind::kNorm});
  modules.push_back({HeadPathOf(config), Module::Kind::kHead});
  return modules;
}

// A matrix with two names is trained under the first: PEFT's ensure_weight_tying.
absl::Status Tie(const ModelConfig& config, LoraTargets& targets) {
  const std::string embedding = ModulePath(kEmbeddingKey), head = ModulePath(kHeadKey);
  for (const std::string& module : {embedding, head}) {
    if (!config.tied_embeddings || !targets.adapters.contains(module)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "lora.target_modules: ", module, " is one matrix with ", module == head ? embedding : head,
        " (tie_word_embeddings): an adapter would change one use of it alone and "
        "could not be merged; name embed_tokens in modules_to_save to train it"));
  }
  if (config.tied_embeddings && targets.saved.erase(head) > 0) targets.saved.insert(embedding);
  return absl::OkStatus();
}

// Rows of added tokens are learned from nothing: whoever freezes them learns nothing.
absl::Status CheckAddedRows(const ModelConfig& config, const LoraTargets& targets) {
  if (!config.adds_tokens()) return absl::OkStatus();
  std::vector<std::string> frozen;
  for (const char* module : {kEmbeddingPath, kHeadPath}) {
    const bool no_table = module == kHeadPath && (config.tied_embeddings || config.classifies());
    if (!no_table && !targets.saved.contains(module)) frozen.emplace_back(module);
  }
  if (frozen.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("added_tokens: their rows of ", absl::StrJoin(frozen, " and "),
                   " would never be trained: name ", absl::StrJoin(frozen, ", "),
                   " in lora.modules_to_save, or give method: full"));
}

// Their scale is nothing to the norm behind it.
int SumOfStreams(BlockBuilder& b, const ModelConfig& m) {
  const int y1 = b.FixedInput(m.width, "input1"), y2 = b.FixedInput(m.width, "input2");
  return b.Add(b.FromFixed(y1, "stream1"), b.FromFixed(y2, "stream2"), "sum");
}

// The loss of what the last layer gives: of each token's prediction, or of each document, which is
// classified by its last token.
void Head(BlockBuilder& b, const ModelConfig& m) {
  int x = m.reversible ? SumOfStreams(b, m) : b.Input(m.width);
  if (m.classifies()) x = b.SelectRows(x, Rows::kDocuments, "last");
  b.HeadLoss(b.RmsNorm(x, "norm", "model.norm.weight"));
}

// The table's rows; two streams begin as the same.
void Stem(BlockBuilder& b, const ModelConfig& m) {
  int x = b.Embedding();
  if (m.reversible) x = b.ToFixed(x, "embedding.fixed");
  for (int stream = 0; stream < (m.reversible ? 2 : 1); ++stream) b.Output(x);
}

// The residual stream through all layers, or two, from borders `x` on; gives the last one's.
std::vector<int> AddLayers(ProgramBuilder& program, const ModelConfig& config,
                           const TrainingMode& mode, std::vector<int> x) {
  std::map<std::pair<LoraTargets, bool>, int> types;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const bool sliding = config.slides(layer);
    LoraTargets targets = program.targets().InLayer(LayerPrefix(config, layer));
    const auto [type, added] = types.try_emplace({targets, sliding});
    if (added) {
      BlockBuilder decoder("decoder", config, mode, std::move(targets.adapters));
      DecoderBlock(decoder, {config, sliding});
      type->second = program.AddType(decoder);
    }
    x = program.AddBlock(type->second, static_cast<int>(layer), std::move(x));
  }
  return x;
}

}  // namespace

absl::StatusOr<Program> BuildProgram(const ModelConfig& given, const TrainingMode& mode) {
  ModelConfig config = given;
  if (mode.reversible || (config.reversible && config.classifies()))
    RETURN_IF_ERROR(MakeReversible(config));
  if (!mode.dropout)
    config.hidden_dropout = config.attention_dropout = config.classifier_dropout =
        config.drop_path = 0.0;
  if (config.encoder) return BuildEncoder(config, mode);
  if (config.has_source()) return BuildEncoderDecoder(config, mode);
  LoraTargets targets;
  if (mode.lora) {
    ASSIGN_OR_RETURN(targets, ResolveTargets(mode.adapter, ModulesOf(config)));
    RETURN_IF_ERROR(Tie(config, targets));
    RETURN_IF_ERROR(CheckAddedRows(config, targets));
    RETURN_IF_ERROR(CheckHeadIsSaved(config, targets));
  }
  ProgramBuilder program(config, mode, std::move(targets));
  BlockBuilder embedding("embedding", config, mode, program.targets().adapters);
  Stem(embedding, config);
  std::vector<int> x = program.AddBlock(program.AddType(embedding), -1, {});
  x = AddLayers(program, config, mode, std::move(x));
  BlockBuilder head("head", config, mode, program.targets().adapters);
  Head(head, config);
  program.AddBlock(program.AddType(head), -1, std::move(x));
  Program built = program.Take();
  RETURN_IF_ERROR(Quantize(built, mode));
  return built;
}

}  // namespace snug::program
