// T5 as one program. The encoder has rows of its own, the source's tokens (Rows::kSource); every
// layer of the decoder reads what its last layer gives, normalised, beside the target's stream.
// Each half of a layer normalises what it reads (RMSNorm) and adds to the stream. Tokens know each
// other's places by a bias of attention's scores alone, whose table the layers of a half share;
// between the decoder and the encoder there is none. What sets v1.0 and v1.1 apart is data of the
// ModelConfig (worker/program/families/t5.cc).
#include "worker/program/encoder_decoder.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/block_builder.h"
#include "worker/program/encoder.h"
#include "worker/program/lora_targets.h"
#include "worker/program/program_builder.h"
#include "worker/program/quantization.h"

namespace snug::program {
namespace {

constexpr char kSharedPath[] = "shared";

// What the keys of a half begin with.
std::string HalfPrefix(const ModelConfig& m, const char* half) {
  return absl::StrCat(m.encoder ? BasePrefix(m) : "", half, ".");
}

// The parameter that holds a half's biases by bucket.
std::string BiasesOf(const ModelConfig& m, const char* half) {
  return HalfPrefix(m, half) + "block.0.layer.0.SelfAttention.relative_attention_bias.weight";
}

// What the encoder reads, which alone is all that there is.
Rows EncodedRows(const ModelConfig& m) { return m.encoder ? Rows::kTokens : Rows::kSource; }

// The table's rows of the source, or of what the decoder reads.
void Embedding(BlockBuilder& b, const ModelConfig& m, Rows rows) {
  b.Output(b.Dropout(b.Embedding(rows), m.hidden_dropout, "embedding.dropped"));
}

// The last norm of a half: "encoder.final_layer_norm.weight".
int LastNorm(BlockBuilder& b, int x, const ModelConfig& m, const char* half) {
  x = b.RmsNorm(x, "norm", HalfPrefix(m, half) + "final_layer_norm.weight");
  return b.Dropout(x, m.hidden_dropout, "norm.dropped");
}

// x plus what `module` makes of f.
int Half(BlockBuilder& b, int x, int f, const ModelConfig& m, const LinearModule& module) {
  const std::string& site = module.results.front().site;
  f = b.Dropout(b.Linear(f, module), m.hidden_dropout, site + ".dropped");
  return b.Add(x, f, site + ".sum");
}

// Of a layer, the half that attends. `keys`: of which; -1: the stream's own, normalised.
struct Attending {
  std::string path;  // "layer.0."
  std::string name;  // "SelfAttention"
  std::string norm;  // Its site.
  AttentionForm form;
  int keys = -1;
};

int AttentionHalf(BlockBuilder& b, int x, const ModelConfig& m, const Attending& a) {
  const int64_t inner = m.heads * m.head_width;
  const std::string& site = a.form.site;
  const int h = b.RmsNorm(x, a.norm, a.path + "layer_norm.weight");
  const auto module = [&](const char* name) {
    return LinearModule{absl::StrCat(a.path, a.name, ".", name),
                        {{absl::StrCat(site, ".", name), inner}}};
  };
  std::vector<int> qkv;
  if (a.keys < 0) {
    qkv = b.Linears(h, {module("q"), module("k"), module("v")});
  } else {
    qkv = {b.Linear(h, module("q"))};
    for (const int value : b.Linears(a.keys, {module("k"), module("v")})) qkv.push_back(value);
  }
  const int o = b.Attention(qkv[0], qkv[1], qkv[2], a.form);
  return Half(b, x, o, m, {absl::StrCat(a.path, a.name, ".o"), {{site + ".o", m.width}}});
}

int MlpHalf(BlockBuilder& b, int x, const ModelConfig& m, const std::string& path) {
  const int h = b.RmsNorm(x, "mlp.norm", path + "layer_norm.weight");
  const std::string module = path + "DenseReluDense.";
  int p = 0;
  if (m.gated_mlp) {
    const std::vector<int> gate_up = b.Linears(h, {{module + "wi_0", {{"mlp.gate", m.mlp_width}}},
                                                   {module + "wi_1", {{"mlp.up", m.mlp_width}}}});
    p = b.Glu(gate_up[0], gate_up[1]);
  } else {
    const int up = b.Linear(h, {module + "wi", {{"mlp.up", m.mlp_width}}});
    p = b.Activated(up, m.activation, "mlp.act");
  }
  p = b.Dropout(p, m.hidden_dropout, "mlp.act.dropped");
  return Half(b, x, p, m, {module + "wo", {{"mlp.down", m.width}}});
}

void EncoderLayer(BlockBuilder& b, const ModelConfig& m) {
  int x = b.Input(m.width, EncodedRows(m));
  x = AttentionHalf(b, x, m,
                    {.path = "layer.0.",
                     .name = "SelfAttention",
                     .norm = "norm1",
                     .form = {.causal = false, .biases = BiasesOf(m, "encoder")}});
  b.Output(MlpHalf(b, x, m, "layer.1."));
}

void DecoderLayer(BlockBuilder& b, const ModelConfig& m) {
  int x = b.Input(m.width);
  const int encoded = b.Input(m.width, Rows::kSource, "encoded");
  x = AttentionHalf(b, x, m,
                    {.path = "layer.0.",
                     .name = "SelfAttention",
                     .norm = "norm1",
                     .form = {.biases = BiasesOf(m, "decoder")}});
  x = AttentionHalf(b, x, m,
                    {.path = "layer.1.",
                     .name = "EncDecAttention",
                     .norm = "norm2",
                     .form = {.causal = false, .site = "cross"},
                     .keys = encoded});
  b.Output(MlpHalf(b, x, m, "layer.2."));
}

// The encoder alone: its classes of tokens are dropped once more before the head reads them.
void EncoderEmbedding(BlockBuilder& b, const ModelConfig& m) { Embedding(b, m, Rows::kTokens); }
void EncoderLayerOf(BlockBuilder& b, const ModelConfig& m, int64_t) { EncoderLayer(b, m); }
void EncoderHead(BlockBuilder& b, const ModelConfig& m) {
  const int x = LastNorm(b, b.Input(m.width), m, "encoder");
  b.HeadLoss(b.Dropout(x, m.classifier_dropout, "head.dropped"));
}

// ---- modules ------------------------------------------------------------------------------------

void AddModules(const BlockBuilder& block, const std::string& prefix,
                std::vector<Module>& modules) {
  for (const ParameterSlot& slot : block.slots()) {
    if (slot.shared || slot.key == kSharedKey || slot.key == kHeadKey) continue;
    modules.push_back(
        {prefix + ModulePath(slot.key), slot.decay ? Module::Kind::kLinear : Module::Kind::kNorm});
  }
}

// All modules of the model, as they run. Tables of biases take no adapter, as norms do not.
std::vector<Module> ModulesOf(const ModelConfig& config) {
  const TrainingMode full;
  BlockBuilder encoder("encoder", config, full), decoder("decoder", config, full),
      norm("encoder_norm", config, full), head("head", config, full);
  EncoderLayer(encoder, config);
  DecoderLayer(decoder, config);
  LastNorm(norm, norm.Input(config.width, Rows::kSource), config, "encoder");
  LastNorm(head, head.Input(config.width), config, "decoder");
  const int64_t encoder_layers = config.layers - config.decoder_layers;
  std::vector<Module> modules = {{kSharedPath, Module::Kind::kNorm}};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const bool encodes = layer < encoder_layers;
    if (layer == 0 || layer == encoder_layers)
      modules.push_back(
          {ModulePath(BiasesOf(config, encodes ? "encoder" : "decoder")), Module::Kind::kNorm});
    AddModules(encodes ? encoder : decoder, LayerPrefix(config, layer), modules);
    if (layer + 1 == encoder_layers) AddModules(norm, "", modules);
  }
  AddModules(head, "", modules);
  modules.push_back({kHeadPath, Module::Kind::kHead});
  return modules;
}

// PEFT would train the table as the embedding of neither half, but beside both: `shared` is no
// module that runs.
absl::Status CheckTargets(const ModelConfig& config, const LoraTargets& targets) {
  if (targets.saved.contains(kSharedPath))
    return absl::InvalidArgumentError(
        "lora.modules_to_save: shared is three modules of PEFT's with one matrix: train it by "
        "method: full");
  const bool head = targets.adapters.contains(kHeadPath) || targets.saved.contains(kHeadPath);
  if (!config.tied_embeddings || !head) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "lora: lm_head is one matrix with shared (tie_word_embeddings): an adapter would change one "
      "use of it alone and could not be merged; train it by method: full");
}

// ---- blocks -------------------------------------------------------------------------------------

class Builder {
 public:
  Builder(const ModelConfig& config, const TrainingMode& mode, LoraTargets targets)
      : config_(config), mode_(mode), program_(config, mode, std::move(targets)) {}

  Program Build() {
    const int64_t encoder_layers = config_.layers - config_.decoder_layers;
    std::vector<int> x = Outside("source_embedding", {},
                                 [this](BlockBuilder& b) { Embedding(b, config_, Rows::kSource); });
    for (int64_t layer = 0; layer < encoder_layers; ++layer) x = Layer(layer, EncoderLayer, x);
    const std::vector<int> encoded = Outside("encoder_norm", x, [this](BlockBuilder& b) {
      b.Output(LastNorm(b, b.Input(config_.width, Rows::kSource), config_, "encoder"));
    });
    x = Outside("embedding", {}, [this](BlockBuilder& b) { Embedding(b, config_, Rows::kTokens); });
    for (int64_t layer = encoder_layers; layer < config_.layers; ++layer)
      x = Layer(layer, DecoderLayer, {x[0], encoded[0]});
    Outside("head", x, [this](BlockBuilder& b) {
      b.HeadLoss(LastNorm(b, b.Input(config_.width), config_, "decoder"));
    });
    return program_.Take();
  }

 private:
  using LayerForm = void (*)(BlockBuilder&, const ModelConfig&);

  // A block of no layer.
  template <typename Fill>
  std::vector<int> Outside(const char* name, std::vector<int> inputs, const Fill& fill) {
    BlockBuilder block(name, config_, mode_, program_.targets().adapters);
    fill(block);
    return program_.AddBlock(program_.AddType(block), -1, std::move(inputs));
  }

  // Types differ by their half and by what is adapted.
  std::vector<int> Layer(int64_t layer, LayerForm form, std::vector<int> inputs) {
    LoraTargets targets = program_.targets().InLayer(LayerPrefix(config_, layer));
    const auto [type, added] = types_.try_emplace({form == DecoderLayer, targets});
    if (added) {
      const char* name = form == DecoderLayer ? "decoder" : "encoder";
      BlockBuilder block(name, config_, mode_, std::move(targets.adapters));
      form(block, config_);
      type->second = program_.AddType(block);
    }
    return program_.AddBlock(type->second, static_cast<int>(layer), std::move(inputs));
  }

  const ModelConfig& config_;
  const TrainingMode& mode_;
  ProgramBuilder program_;
  std::map<std::pair<bool, LoraTargets>, int> types_;
};

}  // namespace

const EncoderBlocks kEncoderOfTwo = {EncoderEmbedding, EncoderLayerOf, FirstLayer, EncoderHead};

void KeepEncoder(ModelConfig& config) {
  config.layers -= config.decoder_layers;
  config.decoder_layers = 0;
  config.start_token = 0;
  config.head_scale = 1.0;
  config.encoder = true;
}

absl::StatusOr<Program> BuildEncoderDecoder(const ModelConfig& config, const TrainingMode& mode) {
  if (config.adds_tokens()) {
    return absl::InvalidArgumentError(
        absl::StrCat("added_tokens: not offered for model_type ", config.model_type));
  }
  LoraTargets targets;
  if (mode.lora) {
    ASSIGN_OR_RETURN(targets, ResolveTargets(mode.adapter, ModulesOf(config)));
    RETURN_IF_ERROR(CheckTargets(config, targets));
  }
  Program built = Builder(config, mode, std::move(targets)).Build();
  RETURN_IF_ERROR(Quantize(built, mode));
  return built;
}

}  // namespace snug::program
