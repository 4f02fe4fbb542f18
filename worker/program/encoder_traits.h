// What sets the families of text encoders apart beside the numbers of config.json: how
// transformers' class and its files call the modules, and what lies between them. BERT's are the
// defaults.
#ifndef WORKER_PROGRAM_ENCODER_TRAITS_H_
#define WORKER_PROGRAM_ENCODER_TRAITS_H_

#include <optional>

#include "worker/program/model_config.h"

namespace snug::program {

struct EncoderTraits {
  // Behind the base's name: the table of tokens, and what stands before a layer's number.
  const char* embedding = "embeddings.word_embeddings";
  const char* layers = "encoder.layer.";

  // Within a layer.
  const char* query = "attention.self.query";
  const char* key = "attention.self.key";
  const char* value = "attention.self.value";
  const char* attention_output = "attention.output.dense";
  const char* attention_norm = "attention.output.LayerNorm";
  const char* up = "intermediate.dense";
  const char* down = "output.dense";
  const char* norm = "output.LayerNorm";
  bool drops_attention_output = true;  // By the hidden dropout.

  // What the first token goes through before a document is classified.
  const char* pooler = "bert.pooler.dense";
  Activation pooler_activation = Activation::kTanh;
  bool drops_classified_tokens = true;  // By the classifier's dropout, else by the hidden one.

  // The head of masked tokens. The decoder's matrix is that of the embedding.
  const char* masked_head = "cls.";  // What its keys begin with.
  const char* transform = "cls.predictions.transform.dense";
  const char* transform_norm = "cls.predictions.transform.LayerNorm";
  const char* decoder = "cls.predictions.decoder";
  const char* decoder_bias = "cls.predictions.bias";
  std::optional<Activation> transform_activation = {};  // None: as in the layers.
};

// Of the model's family.
const EncoderTraits& TraitsOf(const ModelConfig& config);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_ENCODER_TRAITS_H_
