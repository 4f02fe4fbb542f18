// BERT and RoBERTa. RoBERTa counts its positions from behind the padding's id on, has no pooler,
// and classifies through a matrix more; XLM-RoBERTa is RoBERTa with another vocabulary.
#include "worker/program/families/family.h"

namespace snug::program {
namespace {

constexpr JsonFields::RealRange kDropouts = {0.0, 0.99};
constexpr JsonFields::Range kTypes = {1, 65'536};
constexpr JsonFields::Range kPads = {0, 65'536};

void Read(JsonFields& fields, ModelConfig& config) {
  fields.MustBe("position_embedding_type", "absolute");
  fields.MustBe("is_decoder", false);
  ReadActivation(fields, config);
  config.encoder = true;
  config.tied_embeddings = false;
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
                      .encoder = true,
                      .token_classifier = "BertForTokenClassification",
                      .base = "bert",
                      .read = ReadBert};

const Family kRoberta = {.model_type = "roberta",
                         .architecture = "RobertaForMaskedLM",
                         .classifier = "RobertaForSequenceClassification",
                         .max_positions = 512,
                         .norm_epsilon = 1e-12,
                         .encoder = true,
                         .token_classifier = "RobertaForTokenClassification",
                         .base = "roberta",
                         .read = ReadRoberta};

const Family kXlmRoberta = {.model_type = "xlm-roberta",
                            .architecture = "XLMRobertaForMaskedLM",
                            .classifier = "XLMRobertaForSequenceClassification",
                            .max_positions = 512,
                            .norm_epsilon = 1e-12,
                            .encoder = true,
                            .token_classifier = "XLMRobertaForTokenClassification",
                            .base = "roberta",
                            .read = ReadRoberta};

}  // namespace snug::program
