// DistilBERT: BERT without token types and without a pooler, which classifies documents through a
// matrix more and ReLU. Its modules and the fields of its config.json have names of their own.
#include "worker/program/families/family.h"

namespace snug::program {
namespace {

constexpr JsonFields::RealRange kDropouts = {0.0, 0.99};

constexpr EncoderTraits kTraits = {.layers = "transformer.layer.",
                                   .query = "attention.q_lin",
                                   .key = "attention.k_lin",
                                   .value = "attention.v_lin",
                                   .attention_output = "attention.out_lin",
                                   .attention_norm = "sa_layer_norm",
                                   .up = "ffn.lin1",
                                   .down = "ffn.lin2",
                                   .norm = "output_layer_norm",
                                   .drops_attention_output = false,
                                   .pooler = "pre_classifier",
                                   .pooler_activation = Activation::kRelu,
                                   .drops_classified_tokens = false,
                                   .masked_head = "vocab_",
                                   .transform = "vocab_transform",
                                   .transform_norm = "vocab_layer_norm",
                                   .decoder = "vocab_projector",
                                   .decoder_bias = "vocab_projector.bias"};

// Positions that are computed are never trained, and files have them all the same.
void Read(JsonFields& fields, ModelConfig& config) {
  fields.MustBe("sinusoidal_pos_embds", false);
  MustBeAbsent(fields, {"layer_norm_eps"});  // transformers passes over it.
  ReadActivation(fields, config, "activation");
  config.encoder = config.pools = true;
  config.hidden_dropout = fields.Real("dropout", kDropouts, 0.1);
  config.attention_dropout = fields.Real("attention_dropout", kDropouts, 0.1);
  config.classifier_dropout = fields.Real("seq_classif_dropout", kDropouts, 0.2);
}

}  // namespace

const Family kDistilBert = {
    .model_type = "distilbert",
    .architecture = "DistilBertForMaskedLM",
    .classifier = "DistilBertForSequenceClassification",
    .max_positions = 512,
    .norm_epsilon = 1e-12,
    .tied_embeddings = true,
    .encoder = true,
    .token_classifier = "DistilBertForTokenClassification",
    .base = "distilbert",
    .sizes = {.layers = "n_layers", .width = "dim", .heads = "n_heads", .mlp_width = "hidden_dim"},
    .traits = kTraits,
    .read = Read};

}  // namespace snug::program
