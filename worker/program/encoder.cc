// BERT, RoBERTa and DistilBERT as one program: tables of tokens, positions and token types, layers
// that normalise each half's sum (LayerNorm behind it), attention that sees the whole document, an
// MLP without a gate, and a head that classifies a document by its first token, or each token, or
// finds the tokens that are hidden. What sets them apart is data of the ModelConfig and of
// EncoderTraits (worker/program/families/bert.cc, distilbert.cc).
#include "worker/program/encoder.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/block_builder.h"
#include "worker/program/encoder_traits.h"
#include "worker/program/lora_targets.h"
#include "worker/program/program_builder.h"
#include "worker/program/quantization.h"

namespace snug::program {
namespace {

void Embeddings(BlockBuilder& b, const ModelConfig& m) {
  const std::string path = BasePrefix(m) + "embeddings.";
  int x = b.Embedding();
  if (m.token_types > 0) {
    const int types =
        b.Table(path + "token_type_embeddings", m.token_types, Ids::kTokenTypes, "embedding.types");
    x = b.Add(x, types, "embedding.typed");
  }
  const int64_t rows = m.first_position + m.max_positions;
  const int places =
      b.Table(path + "position_embeddings", rows, Ids::kPositions, "embedding.positions");
  x = b.Add(x, places, "embedding.sum");
  x = b.LayerNorm(x, "embedding.norm", path + "LayerNorm");
  b.Output(b.Dropout(x, m.hidden_dropout, "embedding.dropped"));
}

// The second part of a half: what it makes of f, and the norm of the sum with x.
struct HalfEnd {
  std::string site;
  const char* dense;
  const char* norm;
  double dropout;
};

int End(BlockBuilder& b, int x, int f, int64_t width, const HalfEnd& end) {
  f = b.Linear(f, {end.dense, {{end.site, width}}, /*bias=*/true});
  f = b.Dropout(f, end.dropout, end.site + ".dropped");
  return b.LayerNorm(b.Add(x, f, end.site + ".sum"), end.site + ".norm", end.norm);
}

void EncoderBlock(BlockBuilder& b, const ModelConfig& m, int64_t /*layer*/) {
  const EncoderTraits& traits = TraitsOf(m);
  int x = b.Input(m.width);
  const std::vector<int> qkv =
      b.Linears(x, {{traits.query, {{"attention.q", m.width}}, /*bias=*/true},
                    {traits.key, {{"attention.k", m.width}}, /*bias=*/true},
                    {traits.value, {{"attention.v", m.width}}, /*bias=*/true}});
  const int o = b.Attention(qkv[0], qkv[1], qkv[2], /*window=*/0);
  const double dropout = traits.drops_attention_output ? m.hidden_dropout : 0.0;
  x = End(b, x, o, m.width,
          {"attention.output", traits.attention_output, traits.attention_norm, dropout});
  int f = b.Linear(x, {traits.up, {{"mlp.up", m.mlp_width}}, /*bias=*/true});
  f = b.Activated(f, m.activation, "mlp.act");
  b.Output(End(b, x, f, m.width, {"output", traits.down, traits.norm, m.hidden_dropout}));
}

// A document by its first token: BERT's pooler, or the first matrix of RoBERTa's and DistilBERT's
// head, and the matrix that has a row per class.
void HeadOfDocuments(BlockBuilder& b, const ModelConfig& m) {
  const EncoderTraits& traits = TraitsOf(m);
  int x = b.SelectRows(b.Input(m.width), Rows::kDocuments, "first");
  if (!m.pools) x = b.Dropout(x, m.classifier_dropout, "first.dropped");
  x = b.Linear(x, {traits.pooler, {{"pooler", m.width}}, /*bias=*/true});
  x = b.Activated(x, traits.pooler_activation, "pooler.act");
  b.HeadLoss(b.Dropout(x, m.classifier_dropout, "pooler.dropped"));
}

// Hidden tokens by their rows alone, against the table of all tokens.
void HeadOfMaskedTokens(BlockBuilder& b, const ModelConfig& m) {
  const EncoderTraits& traits = TraitsOf(m);
  int x = b.SelectRows(b.Input(m.width), Rows::kTrained, "masked");
  x = b.Linear(x, {traits.transform, {{"transform", m.width}}, /*bias=*/true});
  x = b.Activated(x, traits.transform_activation.value_or(m.activation), "transform.act");
  b.HeadLoss(b.LayerNorm(x, "transform.norm", traits.transform_norm));
}

void Head(BlockBuilder& b, const ModelConfig& m) {
  if (m.of_documents()) return HeadOfDocuments(b, m);
  if (m.task == Task::kMaskedLm) return HeadOfMaskedTokens(b, m);
  const double dropout =
      TraitsOf(m).drops_classified_tokens ? m.classifier_dropout : m.hidden_dropout;
  b.HeadLoss(b.Dropout(b.Input(m.width), dropout, "head.dropped"));
}

constexpr EncoderBlocks kTextEncoder = {Embeddings, EncoderBlock, FirstLayer, Head};

const EncoderBlocks& BlocksOf(const ModelConfig& config) {
  if (!config.stages.empty()) return kWindowedEncoder;
  if (config.distances.buckets > 0) return kEncoderOfTwo;
  return config.of_images() ? kImageEncoder : kTextEncoder;
}

void AddModules(const std::vector<ParameterSlot>& slots, const std::string& prefix,
                std::vector<Module>& modules) {
  for (const ParameterSlot& slot : slots) {
    if (!absl::EndsWith(slot.key, ".weight")) continue;
    const std::string& key = slot.module_key.empty() ? slot.key : slot.module_key;
    const std::string path = (slot.shared ? "" : prefix) + ModulePath(key);
    // PEFT saves RoBERTa's classifier as one module; a head may have the table, the first module,
    // and layers may have one of biases.
    const bool there =
        absl::c_any_of(modules, [&](const Module& module) { return module.path == path; });
    if (there || absl::StartsWith(path, kClassifierPath)) continue;
    const bool linear = slot.decay && slot.shape.size() == 2 && !IsEmbedding({.key = key});
    modules.push_back({path, linear ? Module::Kind::kLinear : Module::Kind::kNorm});
  }
}

// All modules of the model, as they run. Tables take no adapter, as norms do not, nor does what
// makes rows of patches.
std::vector<Module> ModulesOf(const ModelConfig& config) {
  const TrainingMode full;
  BlockBuilder embedding("embedding", config, full), head("head", config, full);
  const EncoderBlocks& blocks = BlocksOf(config);
  blocks.embeddings(embedding, config);
  blocks.head(head, config);
  std::vector<Module> modules;
  AddModules(embedding.slots(), "", modules);
  std::map<int64_t, std::vector<ParameterSlot>> slots;  // By the first layer that has them.
  for (int64_t i = 0; i < config.layers; ++i) {
    const auto [of, added] = slots.try_emplace(blocks.alike(config, i));
    if (added) {
      BlockBuilder layer("encoder", config, full);
      blocks.layer(layer, config, i);
      of->second = layer.slots();
    }
    AddModules(of->second, LayerModules(config, i), modules);
  }
  AddModules(head.slots(), "", modules);
  modules.push_back({HeadPathOf(config), Module::Kind::kHead});
  return modules;
}

// A matrix with two names has an adapter under neither, nor is it saved beside one.
absl::Status CheckTiedHead(const ModelConfig& config, const LoraTargets& targets) {
  if (config.task != Task::kMaskedLm) return absl::OkStatus();
  const std::string head = HeadPathOf(config), table = ModulePath(EmbeddingKeyOf(config));
  const bool adapted = targets.adapters.contains(head);
  if (!adapted && !targets.saved.contains(head) && !targets.saved.contains(table))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      adapted ? "lora.target_modules: " : "lora.modules_to_save: ", head, " and ", table,
      " are one matrix (tie_word_embeddings), of which one use alone would change: train it by "
      "method: full"));
}

// The residual stream through all layers, from border `x` on; gives the last one's.
std::vector<int> AddLayers(ProgramBuilder& program, const ModelConfig& config,
                           const TrainingMode& mode, std::vector<int> x) {
  const EncoderBlocks& blocks = BlocksOf(config);
  std::map<std::pair<int64_t, LoraTargets>, int> types;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    LoraTargets targets = program.targets().InLayer(LayerModules(config, layer));
    const auto [type, added] = types.try_emplace({blocks.alike(config, layer), targets});
    if (added) {
      BlockBuilder encoder("encoder", config, mode, std::move(targets.adapters));
      blocks.layer(encoder, config, layer);
      type->second = program.AddType(encoder);
    }
    x = program.AddBlock(type->second, static_cast<int>(layer), std::move(x));
  }
  return x;
}

}  // namespace

absl::StatusOr<Program> BuildEncoder(const ModelConfig& config, const TrainingMode& mode) {
  if (config.adds_tokens()) {
    return absl::InvalidArgumentError(
        absl::StrCat("added_tokens: not offered for model_type ", config.model_type));
  }
  LoraTargets targets;
  if (mode.lora) {
    ASSIGN_OR_RETURN(targets, ResolveTargets(mode.adapter, ModulesOf(config)));
    RETURN_IF_ERROR(CheckHeadIsSaved(config, targets));
    RETURN_IF_ERROR(CheckTiedHead(config, targets));
  }
  ProgramBuilder program(config, mode, std::move(targets));
  BlockBuilder embedding("embedding", config, mode, program.targets().adapters);
  BlocksOf(config).embeddings(embedding, config);
  std::vector<int> x = program.AddBlock(program.AddType(embedding), -1, {});
  x = AddLayers(program, config, mode, std::move(x));
  BlockBuilder head("head", config, mode, program.targets().adapters);
  BlocksOf(config).head(head, config);
  program.AddBlock(program.AddType(head), -1, std::move(x));
  Program built = program.Take();
  RETURN_IF_ERROR(Quantize(built, mode));
  return built;
}

}  // namespace snug::program
