#include "worker/program/block_builder.h"

#include <bit>
#include <cmath>

#include "worker/program/encoder_traits.h"
#include "worker/program/program_builder.h"

namespace snug::program {
namespace {

// To the nearest value of the dtype, ties to even.
double Rounded(double value, DType dtype) {
  const auto single = static_cast<float>(value);
  if (dtype == DType::kF32) return single;
  auto bits = std::bit_cast<uint32_t>(single);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
  return std::bit_cast<float>(bits);
}

}  // namespace

BlockBuilder::BlockBuilder(std::string name, const ModelConfig& config, const TrainingMode& mode,
                           Adapters adapters)
    : config_(config), mode_(mode), adapters_(std::move(adapters)) {
  type_.name = std::move(name);
}

int BlockBuilder::Input(int64_t width, Rows rows, std::string site) {
  type_.inputs.push_back(
      AddRows({.site = std::move(site), .width = width, .dtype = mode_.compute, .rows = rows}));
  return type_.inputs.back();
}

int BlockBuilder::FixedInput(int64_t width, std::string site) {
  type_.inputs.push_back(
      AddRows({.site = std::move(site), .width = width, .dtype = DType::kFixed}));
  return type_.inputs.back();
}

int BlockBuilder::Embedding(Rows rows) {
  const int x =
      AddRows({.site = "embedding", .width = config_.width, .dtype = mode_.compute, .rows = rows});
  const int slot = AddSlot({EmbeddingKeyOf(config_), {config_.vocabulary, config_.width}});
  const double table_scale = Rounded(config_.embedding_scale, mode_.compute);
  OpAttributes& embedding = AddOp({OpCode::kEmbedding, "embed_tokens", {}, {x}, {slot}, {}});
  embedding.scale = table_scale;
  embedding.ids = rows == Rows::kSource ? Ids::kSource : Ids::kTokens;
  const auto adapter = adapters_.find(kEmbeddingPath);
  if (adapter == adapters_.end()) return x;
  const auto& [rank, scale, dropout] = adapter->second;  // PEFT drops nothing of ids.
  const int y = AddValue("embedding.adapted", config_.width, x);
  const int a = AddSlot({kEmbeddingPath, {rank, config_.vocabulary}, /*adapter=*/true});
  const int b = AddSlot({kEmbeddingPath, {config_.width, rank}, /*adapter=*/true, /*up=*/true});
  OpAttributes& attributes = AddOp({OpCode::kLoraEmbedding, "embed_tokens", {x}, {y}, {a, b}, {}});
  attributes.scale = scale;
  attributes.table_scale = table_scale;
  attributes.rank = rank;
  return y;
}

int BlockBuilder::Table(const std::string& path, int64_t rows, Ids ids, const std::string& site) {
  const int x = AddRows({.site = site, .width = config_.width, .dtype = mode_.compute});
  const int slot = AddSlot({path + ".weight", {rows, config_.width}});
  OpAttributes& attributes = AddOp({OpCode::kEmbedding, path, {}, {x}, {slot}, {}});
  attributes.scale = 1.0;
  attributes.ids = ids;
  return x;
}

int BlockBuilder::PatchEmbedding(const std::string& path, int64_t width,
                                 const std::vector<std::string>& tokens) {
  const int64_t side = config_.patch_size;
  const int x = AddRows({.site = "embedding", .width = width, .dtype = mode_.compute});
  std::vector<int> parameters = {
      AddSlot({path + ".weight", {width, config_.image_channels, side, side}}),
      AddSlot({.key = path + ".bias", .shape = {width}, .decay = false})};
  for (const std::string& token : tokens) parameters.push_back(AddSlot({token, {1, 1, width}}));
  AddOp({OpCode::kPatchEmbedding, path, {}, {x}, std::move(parameters), {}}).patch_width =
      config_.patch_width();
  return x;
}

int BlockBuilder::Places(const std::string& key, const std::string& site) {
  const int x = AddRows({.site = site, .width = config_.width, .dtype = mode_.compute});
  const int slot = AddSlot({key, {1, config_.tokens_of_image(), config_.width}});
  OpAttributes& attributes = AddOp({OpCode::kEmbedding, key, {}, {x}, {slot}, {}});
  attributes.scale = 1.0;
  attributes.ids = Ids::kPositions;
  return x;
}

int BlockBuilder::LayerNorm(int x, const std::string& site, const std::string& path,
                            std::optional<double> epsilon) {
  const int64_t width = type_.values[x].width;
  const int gamma = AddSlot({.key = path + ".weight", .shape = {width}, .decay = false});
  const int beta = AddSlot({.key = path + ".bias", .shape = {width}, .decay = false});
  const int xhat = AddValue(site + ".xhat", width, x);
  const int r = AddCompanion(site + ".r", 1, x);
  const int z = AddValue(site + ".out", width, x);
  OpAttributes& norm = AddOp({OpCode::kNormalize, site, {x}, {xhat, r}, {}, {}});
  norm.epsilon = epsilon.value_or(config_.norm_epsilon);
  norm.centred = true;
  AddOp({OpCode::kAffine, site, {xhat}, {z}, {gamma, beta}, {}}).bias = true;
  return z;
}

int BlockBuilder::RmsNorm(int x, const std::string& site, const std::string& weight,
                          int64_t vectors) {
  const int64_t width = type_.values[x].width;
  const int slot = AddSlot({.key = weight, .shape = {width / vectors}, .decay = false});
  const bool one_op = config_.unit_offset_norms;
  const int xhat = one_op ? -1 : AddValue(site + ".xhat", width, x);
  const int r = AddCompanion(site + ".r", vectors, x);
  const int z = AddValue(site + ".out", width, x);
  if (one_op) {
    OpAttributes& norm = AddOp({OpCode::kRmsNorm, site, {x}, {z, r}, {slot}, {}});
    norm.epsilon = config_.norm_epsilon;
    norm.offset = 1.0;
  } else {
    AddOp({OpCode::kNormalize, site, {x}, {xhat, r}, {}, {}}).epsilon = config_.norm_epsilon;
    AddOp({OpCode::kAffine, site, {xhat}, {z}, {slot}, {}});
  }
  return z;
}

std::vector<int> BlockBuilder::Linears(int z, const std::vector<LinearModule>& modules) {
  std::vector<int> results;
  const std::vector<Down> downs = AddLoraDowns(z, modules);
  for (size_t i = 0; i < modules.size(); ++i) AddLinear(z, modules[i], downs[i], results);
  return results;
}

// One op for all that read z; one for each that drops from it, since PEFT draws a mask per module.
std::vector<BlockBuilder::Down> BlockBuilder::AddLoraDowns(
    int z, const std::vector<LinearModule>& modules) {
  std::vector<Down> downs(modules.size());
  int shared = -1;  // The op.
  for (size_t i = 0; i < modules.size(); ++i) {
    const auto adapter = adapters_.find(modules[i].path);
    if (adapter == adapters_.end()) continue;
    const auto& [rank, scale, dropout] = adapter->second;
    const int a = AddSlot({modules[i].path, {rank, type_.values[z].width}, /*adapter=*/true});
    const bool joins = shared >= 0 && dropout == 0.0 &&
                       type_.ops[shared].parameters.size() < size_t{kMaxOpParameters};
    if (!joins) {
      const int za = AddCompanion(modules[i].results.front().site + ".za", 0, z);
      AddOp({OpCode::kLoraDown, modules[i].path, {z}, {za}, {}, {}}).dropout = dropout;
      if (dropout == 0.0) shared = static_cast<int>(type_.ops.size()) - 1;
    }
    Op& op = joins ? type_.ops[shared] : type_.ops.back();
    Value& za = type_.values[op.outputs.front()];
    op.parameters.push_back(a);
    downs[i] = {op.outputs.front(), za.width};
    za.width += rank;
  }
  return downs;
}

void BlockBuilder::AddLinear(int z, const LinearModule& module, const Down& down,
                             std::vector<int>& results) {
  const int64_t in = type_.values[z].width;
  int64_t out = 0;
  for (const LinearModule::Result& result : module.results) out += result.width;
  std::vector<int> inputs = {z};
  const std::string& path = module.file_path.empty() ? module.path : module.file_path;
  std::vector<int> parameters = {AddSlot(
      {.key = path + ".weight", .shape = {out, in}, .module_key = module.path + ".weight"})};
  OpAttributes attributes;
  const bool adapted = down.za >= 0;
  if (adapted) {
    const Adapter& adapter = adapters_.at(module.path);
    inputs.push_back(down.za);
    parameters.push_back(
        AddSlot({module.path, {out, adapter.rank}, /*adapter=*/true, /*up=*/true}));
    attributes.scale = adapter.scale;
    attributes.za_column = down.column;
    attributes.rank = adapter.rank;
  }
  attributes.bias = module.bias;
  if (module.bias) {
    parameters.push_back(AddSlot({.key = path + ".bias",
                                  .shape = {out},
                                  .decay = false,
                                  .module_key = module.path + ".bias"}));
  }
  const bool fused = module.results.size() > 1;
  for (const auto& [site, width] : module.results) {
    results.push_back(AddValue(site, width, z));
    attributes.rows = fused ? width : 0;
    const OpCode code = adapted ? OpCode::kLoraLinear : OpCode::kLinear;
    AddOp({code, module.path, inputs, {results.back()}, parameters, attributes});
    if (fused) attributes.row += width;
  }
}

int BlockBuilder::Rope(int q, int64_t heads, bool local, const std::string& site) {
  const int y = AddValue(site, type_.values[q].width, q);
  OpAttributes& attributes = AddOp({OpCode::kRope, site, {q}, {y}, {}, {}});
  attributes.heads = heads;
  attributes.head_width = config_.head_width;
  attributes.rotary_width = config_.rotary_width();
  attributes.local = local;
  return y;
}

int BlockBuilder::Attention(int q, int k, int v, int64_t window) {
  return Attention(q, k, v, {.window = window, .causal = !config_.encoder});
}

int BlockBuilder::Attention(int q, int k, int v, const AttentionForm& form) {
  const int o = AddValue(form.site + ".out", type_.values[q].width, q);
  const bool own_heads = form.heads > 0;
  const int64_t heads = own_heads ? form.heads : config_.heads;
  const int64_t head_width = own_heads ? type_.values[q].width / heads : config_.head_width;
  const bool windows = form.windows.side > 0;
  const int lse = AddCompanion(form.site + ".lse", heads, q);
  Op op = {OpCode::kAttention, form.site, {q, k, v}, {o, lse}, {}, {}};
  if (!form.biases.empty()) {
    const int64_t rows = windows ? form.windows.entries() : config_.distances.buckets;
    op.parameters.push_back(AddSlot({.key = form.biases,
                                     .shape = {rows, heads},
                                     .decay = false,
                                     .shared = !windows,
                                     .module_key = form.biases_module}));
    if (!windows) op.attributes.distances = config_.distances;
  }
  op.attributes.order = form.windows;
  op.attributes.query_rows = type_.values[q].rows;
  op.attributes.key_rows = type_.values[k].rows;
  OpAttributes& attributes = AddOp(std::move(op));
  attributes.heads = heads;
  attributes.kv_heads = own_heads ? heads : config_.kv_heads;
  attributes.head_width = head_width;
  attributes.scale =
      own_heads ? 1.0 / std::sqrt(static_cast<double>(head_width)) : config_.attention_scale();
  attributes.softcap = config_.attention_softcap;
  attributes.dropout = config_.attention_dropout;
  attributes.window = form.window;
  attributes.causal = form.causal;
  return o;
}

int BlockBuilder::Glu(int g, int u) {
  const int p = AddValue("mlp.act", type_.values[g].width, g);
  AddOp({OpCode::kGlu, "mlp.act", {g, u}, {p}, {}, {}}).activation = config_.activation;
  return p;
}

int BlockBuilder::Activated(int x, Activation activation, const std::string& site) {
  const int y = AddValue(site, type_.values[x].width, x);
  AddOp({OpCode::kActivation, site, {x}, {y}, {}, {}}).activation = activation;
  return y;
}

int BlockBuilder::Dropout(int x, double rate, const std::string& site) {
  if (rate == 0.0) return x;
  const int y = AddValue(site, type_.values[x].width, x);
  AddOp({OpCode::kDropout, site, {x}, {y}, {}, {}}).dropout = rate;
  return y;
}

int BlockBuilder::DropDocuments(int x, double rate, const std::string& site) {
  if (rate == 0.0) return x;
  const int y = Dropout(x, rate, site);
  type_.ops.back().attributes.whole_documents = true;
  return y;
}

int BlockBuilder::Add(int x, int f, const std::string& site) {
  const int y = AddValue(site, type_.values[x].width, x);
  AddOp({OpCode::kAdd, site, {x, f}, {y}, {}, {}});
  return y;
}

int BlockBuilder::ToFixed(int x, const std::string& site) {
  const int v = AddFixed(site, x);
  AddOp({OpCode::kToFixed, site, {x}, {v}, {}, {}});
  return v;
}

int BlockBuilder::FromFixed(int v, const std::string& site) {
  const int x = AddValue(site, type_.values[v].width, v);
  AddOp({OpCode::kFromFixed, site, {v}, {x}, {}, {}});
  return x;
}

int BlockBuilder::FixedAdd(int v, int f, const std::string& site) {
  const int w = AddFixed(site, v);
  AddOp({OpCode::kFixedAdd, site, {v, f}, {w}, {}, {}});
  return w;
}

int BlockBuilder::SelectRows(int x, Rows rows, const std::string& site) {
  const int y = AddValue(site, type_.values[x].width, x);
  type_.values[y].rows = rows;
  AddOp({OpCode::kSelectRows, site, {x}, {y}, {}, {}});
  return y;
}

int BlockBuilder::MergeRows(int x, int64_t merged, Rows rows, const std::string& site) {
  const int y = AddValue(site, type_.values[x].width * merged, x);
  type_.values[y].rows = rows;
  AddOp({OpCode::kMergeRows, site, {x}, {y}, {}, {}});
  return y;
}

int BlockBuilder::ReorderRows(int x, const PatchOrder& from, const PatchOrder& to,
                              const std::string& site) {
  const int y = AddValue(site, type_.values[x].width, x);
  OpAttributes& attributes = AddOp({OpCode::kReorderRows, site, {x}, {y}, {}, {}});
  attributes.order = to;
  attributes.order_before = from;
  return y;
}

int BlockBuilder::MeanRows(int x, const std::string& site) {
  const int y = AddValue(site, type_.values[x].width, x);
  type_.values[y].rows = Rows::kDocuments;
  AddOp({OpCode::kMeanRows, site, {x}, {y}, {}, {}});
  return y;
}

void BlockBuilder::HeadLoss(int z) {
  const std::string path = HeadPathOf(config_);
  const int64_t rows = HeadRowsOf(config_);
  const int slot = AddSlot({HeadKeyOf(config_), {rows, config_.width}});
  Op head = {OpCode::kHeadLoss, path, {z}, {}, {slot}, {}};
  head.attributes.softcap = config_.logit_softcap;
  head.attributes.smoothing = mode_.label_smoothing;
  head.attributes.table_scale = config_.head_scale;
  head.attributes.rows = config_.classifies() ? rows : 0;
  if (config_.has_targets())
    head.attributes.loss = config_.problem == Problem::kRegression ? Loss::kSquare : Loss::kBinary;
  head.attributes.selected = type_.values[z].rows != Rows::kTokens;
  const Down down = AddLoraDowns(z, {{path, {{path, rows}}}}).front();
  if (down.za >= 0) {
    const Adapter& adapter = adapters_.at(path);
    head.inputs.push_back(down.za);
    head.parameters.push_back(AddSlot({path, {rows, adapter.rank}, /*adapter=*/true, /*up=*/true}));
    head.attributes.scale = adapter.scale;
    head.attributes.rank = adapter.rank;
  }
  if (config_.encoder) {
    const bool masked = config_.task == Task::kMaskedLm;
    const std::string bias =
        masked ? TraitsOf(config_).decoder_bias : ModulePath(HeadKeyOf(config_)) + ".bias";
    head.parameters.push_back(AddSlot({.key = bias, .shape = {rows}, .decay = false}));
    head.attributes.bias = true;
  }
  AddOp(std::move(head));
}

BlockType BlockBuilder::TakeType() {
  type_.parameter_slots = static_cast<int>(slots_.size());
  return std::move(type_);
}

int BlockBuilder::AddValue(std::string site, int64_t width, int like) {
  return AddRows({.site = std::move(site),
                  .width = width,
                  .dtype = mode_.compute,
                  .rows = type_.values[like].rows});
}

int BlockBuilder::AddFixed(std::string site, int like) {
  const int v = AddValue(std::move(site), type_.values[like].width, like);
  type_.values[v].dtype = DType::kFixed;
  return v;
}

int BlockBuilder::AddCompanion(std::string site, int64_t width, int like) {
  return AddRows({.site = std::move(site),
                  .width = width,
                  .dtype = DType::kF32,
                  .companion = true,
                  .rows = type_.values[like].rows});
}

int BlockBuilder::AddRows(Value value) {
  type_.values.push_back(std::move(value));
  return static_cast<int>(type_.values.size()) - 1;
}

int BlockBuilder::AddSlot(ParameterSlot slot) {
  slots_.push_back(std::move(slot));
  return static_cast<int>(slots_.size()) - 1;
}

OpAttributes& BlockBuilder::AddOp(Op op) {
  type_.ops.push_back(std::move(op));
  return type_.ops.back().attributes;
}

}  // namespace snug::program
