// Swin (Liu et al. 2021): an image's patches as rows, in stages; layers that normalise what each
// half reads (LayerNorm before it); attention within windows, in every other layer of windows that
// are shifted, with a bias by how far two patches are apart; an MLP without a gate; four patches
// merged into one between stages; and a head that reads the mean of the last stage's patches.
//
// Patches lie in the order of a stage's windows from the first layer on. Only what a shifted
// layer's attention reads and gives is put into another, and what is merged (patch_order.h).
//
// Modules have the names of transformers' class, by which PEFT's adapters call them; the files
// spell those of a layer as they did before transformers 5.
#include <string>
#include <vector>

#include "worker/program/block_builder.h"
#include "worker/program/encoder.h"
#include "worker/program/stages.h"

namespace snug::program {
namespace {

// Of the norms that the configuration says nothing of: PyTorch's.
constexpr double kOwnEpsilon = 1e-5;

void Embeddings(BlockBuilder& b, const ModelConfig& m) {
  const std::string path = BasePrefix(m) + "embeddings.";
  int x = b.PatchEmbedding(path + "patch_embeddings.projection", WidthOf(m, 0), {});
  x = b.LayerNorm(x, "embedding.norm", path + "norm", kOwnEpsilon);
  b.Output(b.Dropout(x, m.hidden_dropout, "embedding.dropped"));
}

void Merging(BlockBuilder& b, const ModelConfig& m, int64_t stage) {
  const int64_t width = WidthOf(m, stage);
  int x = b.Input(width, StageRows(stage));
  x = b.ReorderRows(x, OrderOf(m, stage), MergingOrderOf(m, stage), "fours");
  x = b.MergeRows(x, 4, StageRows(stage + 1), "merged");
  x = b.LayerNorm(x, "norm", "norm", kOwnEpsilon);
  b.Output(b.Linear(x, {"reduction", {{"reduction", 2 * width}}, /*bias=*/false}));
}

int Attention(BlockBuilder& b, const ModelConfig& m, const StagePlace& place, int z) {
  const auto linear = [](const char* module, const char* site, int64_t width, const char* file,
                         bool bias) {
    return LinearModule{module, {{site, width}}, bias, file};
  };
  const int64_t width = WidthOf(m, place.stage), heads = m.stages[place.stage].heads;
  const bool shifted = IsShifted(m, place);
  const PatchOrder order = OrderOf(m, place.stage);
  const PatchOrder windows = shifted ? ShiftedOrderOf(m, place.stage) : order;
  if (shifted) z = b.ReorderRows(z, order, windows, "attention.shifted");
  const std::vector<int> qkv = b.Linears(
      z, {linear("attention.q_proj", "attention.q", width, "attention.self.query", m.qkv_bias),
          linear("attention.k_proj", "attention.k", width, "attention.self.key", m.qkv_bias),
          linear("attention.v_proj", "attention.v", width, "attention.self.value", m.qkv_bias)});
  int f =
      b.Attention(qkv[0], qkv[1], qkv[2],
                  {.causal = false,
                   .biases = "attention.self.relative_position_bias_table",
                   .biases_module = "attention.relative_position_bias.relative_position_bias_table",
                   .heads = heads,
                   .windows = windows});
  f = b.Linear(
      f, linear("attention.o_proj", "attention.output", width, "attention.output.dense", true));
  f = b.Dropout(f, m.hidden_dropout, "attention.dropped");
  if (shifted) f = b.ReorderRows(f, windows, order, "attention.back");
  return b.DropDocuments(f, DropPathOf(m, place), "attention.path");
}

void Layer(BlockBuilder& b, const ModelConfig& m, int64_t layer) {
  const StagePlace place = PlaceOf(m, layer);
  if (place.merges) return Merging(b, m, place.stage);
  const int64_t width = WidthOf(m, place.stage), mlp_width = MlpWidthOf(m, place.stage);
  int x = b.Input(width, StageRows(place.stage));
  int z = b.LayerNorm(x, "norm1", "layernorm_before");
  x = b.Add(x, Attention(b, m, place, z), "residual");
  z = b.LayerNorm(x, "norm2", "layernorm_after");
  int f = b.Linear(z, {"mlp.fc1", {{"mlp.up", mlp_width}}, /*bias=*/true, "intermediate.dense"});
  f = b.Activated(f, m.activation, "mlp.act");
  f = b.Linear(f, {"mlp.fc2", {{"mlp.down", width}}, /*bias=*/true, "output.dense"});
  b.Output(b.Add(x, b.Dropout(f, m.hidden_dropout, "mlp.dropped"), "output"));
}

// Those of a stage differ in shift, every second one, and in how often their attention is passed
// by.
int64_t FirstAlike(const ModelConfig& m, int64_t layer) {
  const StagePlace place = PlaceOf(m, layer);
  if (place.merges || m.drop_path > 0.0) return layer;
  return layer - place.layer + (IsShifted(m, place) ? 1 : 0);
}

void Head(BlockBuilder& b, const ModelConfig& m) {
  const int x = b.Input(m.width, StageRows(static_cast<int64_t>(m.stages.size()) - 1));
  b.HeadLoss(b.MeanRows(b.LayerNorm(x, "norm", BasePrefix(m) + "layernorm"), "pooled"));
}

}  // namespace

const EncoderBlocks kWindowedEncoder = {Embeddings, Layer, FirstAlike, Head};

}  // namespace snug::program
