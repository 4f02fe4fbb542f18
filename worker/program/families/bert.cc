// BERT and RoBERTa. RoBERTa counts its positions from behind the padding's id on, has no pooler,
// and classifies through a matrix more; XLM-RoBERTa is RoBERTa with another vocabulary.
#include "worker/program/families/family.h"

namespace snug::program {
namespace {

constexpr JsonFields::RealRange kDropouts = {0.0, 0.99};
constexpr JsonFields::Range kTypes = {1, 65'536};
constexpr JsonFields::Range kPads = {0, 65'536};

constexpr EncoderTraits kRobertaTraits = {.pooler = "classifier.dense",
                                          .masked_head = "lm_head.",
                                          .transform = "lm_head.dense",
                                          .transform_norm = "lm_head.layer_norm",
                                          .decoder = "lm_head.decoder",
                                          .decoder_bias = "lm_head.bias",
                                          .transform_activation = Activation::kGelu};

void Read(JsonFields& fields, ModelConfig& config) {
  fields.MustBe("position_embedding_type", "absolute");
  fields.MustBe("is_decoder", false);
  ReadActivation(fields, config);
  config.encoder = true;
  config.token_types = fields.Integer("type_vocab_size", kTypes, 2);
  config.hidden_dropout = fields.Real("hidden_dropout_prob", kDropouts, 0.1);
  config.attention_dropout = fields.Real("attention_probs_dropout_prob", kDropouts, 0.1);
  config.classifier_dropout = fields.Real("classifier_dropout", kDropouts, config.hidden_dropout);
}

void ReadBert(JsonFields& fields, ModelConfig& config) {
  config.pools = true;
  Read(fields, config);
}

void ReadRoberta(JsonFields& fields, ModelConfig& config) {
  Read(fields, config);
  config.first_position = fields.Integer("pad_token_id", kPads, 1) + 1;
  config.max_positions -= config.first_position;
  if (config.max_positions < 1)
    fields.Refuse("max_position_embeddings", "more than pad_token_id + 1");
}

}  // namespace

const Family kBert = {.model_type = "bert",
                      .architecture = "BertForMaskedLM",
                      .classifier = "BertForSequenceClassification",
                      .max_positions = 512,
                      .norm_epsilon = 1e-12,
                      .tied_embeddings = true,
                      .encoder = true,
                      .token_classifier = "BertForTokenClassification",
                      .pretrained = "BertForPreTraining",
                      .base = "bert",
                      .read = ReadBert};

const Family kRoberta = {.model_type = "roberta",
                         .architecture = "RobertaForMaskedLM",
                         .classifier = "RobertaForSequenceClassification",
                         .max_positions = 512,
                         .norm_epsilon = 1e-12,
                         .tied_embeddings = true,
                         .encoder = true,
                         .token_classifier = "RobertaForTokenClassification",
                         .base = "roberta",
                         .traits = kRobertaTraits,
                         .read = ReadRoberta};

const Family kXlmRoberta = {.model_type = "xlm-roberta",
                            .architecture = "XLMRobertaForMaskedLM",
                            .classifier = "XLMRobertaForSequenceClassification",
                            .max_positions = 512,
                            .norm_epsilon = 1e-12,
                            .tied_embeddings = true,
                            .encoder = true,
                            .token_classifier = "XLMRobertaForTokenClassification",
                            .base = "roberta",
                            .traits = kRobertaTraits,
                            .read = ReadRoberta};

}  // namespace snug::program
