// What a model directory's config.json says, in the terms of a program. Reads the spelling of
// transformers 4 and of transformers 5; refuses what no program here computes, naming the field and
// what is accepted.
#ifndef WORKER_PROGRAM_MODEL_CONFIG_H_
#define WORKER_PROGRAM_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/quantization_kind.h"
#include "worker/program/relative_positions.h"
#include "worker/program/rope_scaling.h"
#include "worker/program/stage_sizes.h"
#include "worker/program/task.h"

namespace snug::program {

enum class DType : uint8_t {
  kF32,
  kBF16,
  kU8,     // Bytes with a meaning of their own: codes of a stash.
  kFixed,  // 32 bits, those behind the point kernels::kFixedBits; gradients of it are floats.
};

constexpr int64_t SizeOf(DType dtype) {
  return dtype == DType::kBF16 ? 2 : dtype == DType::kU8 ? 1 : 4;
}

// What an MLP's gate, or its middle, goes through: x sigmoid(x), GELU in its tanh form and its own,
// ReLU; tanh is that of a pooler.
enum class Activation : uint8_t { kSilu, kGeluTanh, kGelu, kRelu, kTanh };

// Pixels of a side: far beyond what is trained, and counted in 32 bits as a square.
inline constexpr int64_t kMaxImageSize = 4096;

struct ModelConfig {
  std::string model_type;  // "llama"; the others are in worker/program/families.
  int64_t layers = 0;      // L
  int64_t width = 0;       // C
  int64_t heads = 0;       // H
  int64_t kv_heads = 0;
  int64_t head_width = 0;  // D, not always C / H
  int64_t mlp_width = 0;
  int64_t vocabulary = 0;     // V, with what a job adds (added_tokens.h).
  int64_t max_positions = 0;  // Tokens.
  double norm_epsilon = 1e-6, rope_theta = 10000.0;
  RopeScaling rope_scaling;
  bool tied_embeddings = false;  // Of the embedding and a head of the vocabulary.
  Task task = Task::kCausalLm;
  int64_t labels = 0;  // Of a classification head.
  Problem problem = Problem::kSingleLabel;
  bool new_head = false;      // The model's files have none of the task's: it is drawn.
  double head_spread = 0.02;  // The standard deviation of what is drawn: initializer_range.
  int64_t pad_token = -1;     // Its id; -1: none. What is classified is read before the padding.

  // Where a job adds tokens: V of the model's files, and the first of the ids whose rows begin as
  // the mean of those before.
  int64_t file_vocabulary = 0, first_added = 0;
  Quantization quantization = Quantization::kNone;  // As its files have the layers' linear weights,
  std::vector<std::string> in_floats;               // but for those of these modules,
  std::vector<std::string> outer_codes;             // and outside the layers those of these.

  // What sets a family apart. The defaults are Llama's.
  Activation activation = Activation::kSilu;
  bool qkv_bias = false;
  bool output_bias = false, mlp_bias = false;  // Of self_attn.o_proj; of the MLP's three.
  bool head_norms = false;         // Each head of q and k is normalised before it is turned.
  bool post_norms = false;         // Each half's result is normalised before it is added.
  bool unit_offset_norms = false;  // Norm weights are stored less one.
  bool fused_projections = false;  // qkv_proj and gate_up_proj.
  double embedding_scale = 1.0;    // Rounded to the compute dtype before use.
  double rotary_share = 1.0;       // Of a head's elements, the first are turned.
  double local_rope_theta = 0.0;   // Of the layers that slide, unscaled; 0: as the others.
  double query_scalar = 0.0;       // Scores are divided by its root; 0: by that of D.
  double attention_softcap = 0.0;  // 0: none.
  double attention_dropout = 0.0;
  double logit_softcap = 0.0;  // 0: none.
  int64_t window = 0;          // Tokens that a query of a sliding layer sees, itself included.
  std::vector<bool> sliding;   // By layer; empty: none.
  bool reversible = false;     // Two streams in fixed point (worker/program/decoder.cc).

  // Of an encoder (worker/program/encoder.cc).
  bool encoder = false;         // Every token sees its whole document; positions have a table.
  bool pools = false;           // One matrix classifies a document, by what a pooler gives.
  int64_t token_types = 0;      // 0: none.
  int64_t first_position = 0;   // The row of the table of positions that the first token has.
  double hidden_dropout = 0.0;  // Behind embeddings and each half of a layer.
  double classifier_dropout = 0.0;

  // Of an encoder-decoder (worker/program/encoder_decoder.cc), which has those dropouts as well.
  int64_t decoder_layers = 0;  // Of `layers` the last; 0: it is none.
  Distances distances;         // Between tokens of one half.
  bool gated_mlp = true;
  double head_scale = 1.0;  // Of what the head reads.
  int64_t start_token = 0;  // What the decoder reads first.

  // Of an encoder of images, whose tokens are patches (worker/program/image_encoder.cc).
  int64_t image_size = 0;  // Pixels of a side; 0: it reads tokens.
  int64_t patch_size = 0, image_channels = 0;
  bool distilled = false;  // A second token beside the class's.

  // In stages, with windows (worker/program/stages.h); the sizes above are the last one's.
  std::vector<StageSizes> stages;
  int64_t window_side = 0;  // Patches.
  double drop_path = 0.0;   // How probably the last layer's attention is passed by.

  bool operator==(const ModelConfig&) const = default;
  bool adds_tokens() const { return first_added > 0; }
  bool has_source() const { return decoder_layers > 0; }
  // Documents, which images are too, or tokens.
  bool classifies() const { return of_documents() || task == Task::kTokenClassification; }
  bool of_documents() const {
    return task == Task::kSequenceClassification || task == Task::kImageClassification;
  }
  // Documents have a number per class, not one class.
  bool has_targets() const { return of_documents() && problem != Problem::kSingleLabel; }
  bool of_images() const { return image_size > 0; }
  int64_t special_tokens() const;  // Rows that are no patches.
  int64_t tokens_of_image() const;
  int64_t patch_width() const { return image_channels * patch_size * patch_size; }
  bool slides(int64_t layer) const;
  double attention_scale() const;
  int64_t rotary_width() const;  // Elements of a head that are turned; of an encoder or T5 none.
};

// `text` is the content of a config.json; `where` names it in errors.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text, std::string_view where);
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& model_dir);  // With outer_codes.

// Of its keys, what comes before those of the base: "model.", "bert.".
std::string BasePrefix(const ModelConfig& config);

// config.json's model_type of an exported reversible model, before its family's.
inline constexpr char kReversibleType[] = "reversible_";

// Two streams instead of one. Errors: of what no reversible model is.
absl::Status MakeReversible(ModelConfig& config);

// The class of transformers for its family and task: "LlamaForCausalLM".
std::string ArchitectureOf(const ModelConfig& config);

// One that another process read: of a known family, and within the limits that reading keeps.
absl::Status CheckModelConfig(const ModelConfig& config);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_MODEL_CONFIG_H_
