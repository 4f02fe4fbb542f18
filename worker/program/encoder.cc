// BERT and RoBERTa as one program: tables of tokens, positions and token types, layers that
// normalise each half's sum (LayerNorm behind it), attention that sees the whole document, an MLP
// without a gate, and a head that classifies a document by its first token, or each token. What
// sets the two apart is data of the ModelConfig (worker/program/families/bert.cc).
#include "worker/program/encoder.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/block_builder.h"
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

// x plus what `module` makes of f, normalised.
int Half(BlockBuilder& b, int x, int f, const ModelConfig& m, const std::string& module) {
  f = b.Linear(f, {module + ".dense", {{module, m.width}}, /*bias=*/true});
  f = b.Dropout(f, m.hidden_dropout, module + ".dropped");
  return b.LayerNorm(b.Add(x, f, module + ".sum"), module + ".norm", module + ".LayerNorm");
}

void EncoderBlock(BlockBuilder& b, const ModelConfig& m) {
  int x = b.Input(m.width);
  const std::vector<int> qkv =
      b.Linears(x, {{"attention.self.query", {{"attention.q", m.width}}, /*bias=*/true},
                    {"attention.self.key", {{"attention.k", m.width}}, /*bias=*/true},
                    {"attention.self.value", {{"attention.v", m.width}}, /*bias=*/true}});
  const int o = b.Attention(qkv[0], qkv[1], qkv[2], /*window=*/0);
  x = Half(b, x, o, m, "attention.output");
  const int up = b.Linear(x, {"intermediate.dense", {{"mlp.up", m.mlp_width}}, /*bias=*/true});
  b.Output(Half(b, x, b.Activated(up, m.activation, "mlp.act"), m, "output"));
}

// A document by its first token: BERT's pooler, or RoBERTa's first matrix of the classifier, and
// the matrix that has a row per class.
void HeadOfDocuments(BlockBuilder& b, const ModelConfig& m) {
  int x = b.SelectRows(b.Input(m.width), Rows::kDocuments, "first");
  if (!m.pools) x = b.Dropout(x, m.classifier_dropout, "first.dropped");
  const std::string path = m.pools ? BasePrefix(m) + "pooler.dense" : "classifier.dense";
  x = b.Linear(x, {path, {{"pooler", m.width}}, /*bias=*/true});
  x = b.Activated(x, Activation::kTanh, "pooler.act");
  b.HeadLoss(b.Dropout(x, m.classifier_dropout, "pooler.dropped"));
}

void Head(BlockBuilder& b, const ModelConfig& m) {
  if (m.of_documents()) return HeadOfDocuments(b, m);
  b.HeadLoss(b.Dropout(b.Input(m.width), m.classifier_dropout, "head.dropped"));
}

constexpr EncoderBlocks kTextEncoder = {Embeddings, EncoderBlock, Head};

const EncoderBlocks& BlocksOf(const ModelConfig& config) {
  return config.of_images() ? kImageEncoder : kTextEncoder;
}

void AddModules(const BlockBuilder& block, const std::string& prefix,
                std::vector<Module>& modules) {
  for (const ParameterSlot& slot : block.slots()) {
    if (!absl::EndsWith(slot.key, ".weight")) continue;
    const std::string& key = slot.module_key.empty() ? slot.key : slot.module_key;
    const std::string path = prefix + ModulePath(key);
    // PEFT saves RoBERTa's classifier as one module.
    if (absl::StartsWith(path, kClassifierPath)) continue;
    const bool linear =
        slot.decay && slot.shape.size() == 2 && !absl::EndsWith(path, "_embeddings");
    modules.push_back({path, linear ? Module::Kind::kLinear : Module::Kind::kNorm});
  }
}

// All modules of the model, as they run. Tables take no adapter, as norms do not, nor does what
// makes rows of patches.
std::vector<Module> ModulesOf(const ModelConfig& config) {
  const TrainingMode full;
  BlockBuilder embedding("embedding", config, full), layer("encoder", config, full),
      head("head", config, full);
  const EncoderBlocks& blocks = BlocksOf(config);
  blocks.embeddings(embedding, config);
  blocks.layer(layer, config);
  blocks.head(head, config);
  std::vector<Module> modules;
  AddModules(embedding, "", modules);
  for (int64_t i = 0; i < config.layers; ++i) AddModules(layer, LayerModules(config, i), modules);
  AddModules(head, "", modules);
  modules.push_back({kClassifierPath, Module::Kind::kHead});
  return modules;
}

// The residual stream through all layers, from border `x` on; gives the last one's.
std::vector<int> AddLayers(ProgramBuilder& program, const ModelConfig& config,
                           const TrainingMode& mode, std::vector<int> x) {
  std::map<LoraTargets, int> types;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    LoraTargets targets = program.targets().InLayer(LayerModules(config, layer));
    const auto [type, added] = types.try_emplace(targets);
    if (added) {
      BlockBuilder encoder("encoder", config, mode, std::move(targets.adapters));
      BlocksOf(config).layer(encoder, config);
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
  RETURN_IF_ERROR(Quantize(built, mode.quantization));
  return built;
}

}  // namespace snug::program
