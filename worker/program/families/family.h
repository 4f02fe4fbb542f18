// The families: what transformers' class of each assumes where config.json is silent, and
// what its own fields say. A family is one file of this folder: it sets ModelConfig's traits and
// refuses by name what no program computes; the program is worker/program/decoder.cc for all that
// predict the next token, encoder.cc for BERT, RoBERTa and DistilBERT, image_encoder.cc for ViT and
// DeiT, windowed_encoder.cc for Swin, encoder_decoder.cc for T5.
#ifndef WORKER_PROGRAM_FAMILIES_FAMILY_H_
#define WORKER_PROGRAM_FAMILIES_FAMILY_H_

#include <cstdint>
#include <functional>
#include <initializer_list>

#include "worker/program/encoder_traits.h"
#include "worker/program/files/json_fields.h"
#include "worker/program/model_config.h"
#include "worker/program/rope_config.h"

namespace snug::program {

// What config.json calls the sizes.
struct SizeNames {
  const char* layers = "num_hidden_layers";
  const char* width = "hidden_size";
  const char* heads = "num_attention_heads";
  const char* mlp_width = "intermediate_size";
};

struct Family {
  const char* model_type;
  const char* architecture;
  const char* classifier;  // The class for sequence classification,
  int64_t max_positions;
  int64_t kv_heads = 0;    // 0: as many as heads.
  int64_t head_width = 0;  // 0: hidden_size / num_attention_heads.
  double norm_epsilon = 1e-6;
  bool tied_embeddings = false;
  bool encoder = false;
  bool encoder_decoder = false;
  bool images = false;                // It reads them in the place of tokens.
  bool staged = false;                // Its sizes are lists, which it reads itself.
  bool reversible = false;            // Its class's layer has two halves and nothing else.
  const char* token_classifier = "";  // and, of an encoder, for token classification.
  const char* pretrained = "";        // The class that has a head of masked tokens and another.
  const char* base = "model";         // The module of transformers' class that is not the head.
  const char* in_floats = "";         // A module that transformers never quantises.
  SizeNames sizes = {};
  EncoderTraits traits = {};  // Of an encoder of texts.
  // Called when the sizes are in `config`; of an encoder-decoder, whose fields have names of their
  // own, in the place of all else.
  void (*read)(JsonFields& fields, ModelConfig& config);
};

extern const Family kLlama, kMistral, kQwen2, kQwen3, kGemma2, kGemma3, kPhi3, kBert, kRoberta,
    kXlmRoberta, kDistilBert, kT5, kVit, kDeit, kSwin;

// ---- what families share ------------------------------------------------------------------------

// Scalings whose frequencies do not depend on the batch.
inline const RopeRules kCommonRope;

// The fields must be absent, or null.
void MustBeAbsent(JsonFields& fields, std::initializer_list<const char*> names);

// Of an encoder.
void ReadActivation(JsonFields& fields, ModelConfig& config, const char* field = "hidden_act");

// What all encoders of images have: sizes of squares, with the patches' where the file is silent,
// activation, biases of q, k and v, dropout.
void ReadImageEncoder(JsonFields& fields, ModelConfig& config, int64_t patch_size);

// A number of tokens; null: 0, no window.
int64_t ReadWindow(JsonFields& fields, int64_t absent);

// config.window on every layer, or on none where it is 0.
void SlideEveryLayer(ModelConfig& config);

// config.window on the layers that layer_types names; without that field, on those for which
// `slides` holds.
void ReadLayerTypes(JsonFields& fields, ModelConfig& config,
                    const std::function<bool(int64_t layer)>& slides);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_FAMILIES_FAMILY_H_
