// ViT and DeiT: an image's patches as rows behind the class's, and the teacher's where there is
// one; places learned; layers that normalise what each half reads (LayerNorm before it); attention
// that sees the whole image, an MLP without a gate; and a head that reads the class's row.
//
// Modules have the names of transformers' class, by which PEFT's adapters call them; the files
// spell those of a layer as they did before transformers 5.
#include <string>
#include <vector>

#include "worker/program/block_builder.h"
#include "worker/program/encoder.h"

namespace snug::program {
namespace {

void Embeddings(BlockBuilder& b, const ModelConfig& m) {
  const std::string path = BasePrefix(m) + "embeddings.";
  std::vector<std::string> tokens = {path + "cls_token"};
  if (m.distilled) tokens.push_back(path + "distillation_token");
  const int x = b.PatchEmbedding(path + "patch_embeddings.projection", m.width, tokens);
  const int places = b.Places(path + "position_embeddings", "embedding.positions");
  b.Output(b.Dropout(b.Add(x, places, "embedding.sum"), m.hidden_dropout, "embedding.dropped"));
}

void Layer(BlockBuilder& b, const ModelConfig& m, int64_t /*layer*/) {
  const auto linear = [](const char* module, const char* site, int64_t width, const char* file,
                         bool bias = true) {
    return LinearModule{module, {{site, width}}, bias, file};
  };
  const int64_t heads = m.heads * m.head_width;
  int x = b.Input(m.width);
  int z = b.LayerNorm(x, "norm1", "layernorm_before");
  const std::vector<int> read = b.Linears(
      z,
      {linear("attention.q_proj", "attention.q", heads, "attention.attention.query", m.qkv_bias),
       linear("attention.k_proj", "attention.k", heads, "attention.attention.key", m.qkv_bias),
       linear("attention.v_proj", "attention.v", heads, "attention.attention.value", m.qkv_bias)});
  int f = b.Attention(read[0], read[1], read[2], /*window=*/0);
  f = b.Linear(f,
               linear("attention.o_proj", "attention.output", m.width, "attention.output.dense"));
  x = b.Add(x, b.Dropout(f, m.hidden_dropout, "attention.dropped"), "residual");
  z = b.LayerNorm(x, "norm2", "layernorm_after");
  f = b.Linear(z, linear("mlp.fc1", "mlp.up", m.mlp_width, "intermediate.dense"));
  f = b.Activated(f, m.activation, "mlp.act");
  f = b.Linear(f, linear("mlp.fc2", "mlp.down", m.width, "output.dense"));
  b.Output(b.Add(x, b.Dropout(f, m.hidden_dropout, "mlp.dropped"), "output"));
}

// Of a normalised row nothing but the row is needed, so that the others are not normalised.
void Head(BlockBuilder& b, const ModelConfig& m) {
  const int x = b.SelectRows(b.Input(m.width), Rows::kDocuments, "class");
  b.HeadLoss(b.LayerNorm(x, "norm", BasePrefix(m) + "layernorm"));
}

}  // namespace

const EncoderBlocks kImageEncoder = {Embeddings, Layer, FirstLayer, Head};

}  // namespace snug::program
