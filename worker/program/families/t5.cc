// T5: v1.0 (ReLU, a head that is the embedding, of scaled inputs) and v1.1 with FLAN-T5 (gated
// GELU, a head of its own). What sets them apart is in config.json. Its encoder alone has a head
// for classes of tokens.
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "worker/program/encoder_decoder.h"
#include "worker/program/families/family.h"

namespace snug::program {
namespace {

using nlohmann::json;

constexpr JsonFields::RealRange kDropouts = {0.0, 0.99};
constexpr JsonFields::Range kLayers = {1, 512}, kHeads = {1, 1'024}, kWidths = {1, 65'536},
                            kMlpWidths = {1, 1'048'576}, kIds = {0, 4'000'000},
                            kVocabularies = {1, 4'000'000},
                            kBuckets = {kFewestBuckets, kMostBuckets},
                            kFarthest = {2, kFarthestDistance};
constexpr int64_t kPositions = 4'000'000;  // Distances have no end.

struct Named {
  const char* name;
  Activation activation;
};
constexpr Named kActivations[] = {{"relu", Activation::kRelu},
                                  {"gelu", Activation::kGelu},
                                  {"gelu_new", Activation::kGeluTanh},
                                  {"silu", Activation::kSilu}};

void RefuseProjection(JsonFields& fields) {
  fields.Refuse("feed_forward_proj",
                "\"relu\", \"gelu\", \"gelu_new\", \"silu\", each also behind \"gated-\"");
}

// "relu", "gated-gelu": the latter is GELU in its tanh form, as transformers has it.
void ReadProjection(JsonFields& fields, ModelConfig& config) {
  config.gated_mlp = false;
  config.activation = Activation::kRelu;
  const json* given = fields.Find("feed_forward_proj");
  if (given == nullptr) return;
  if (!given->is_string()) return RefuseProjection(fields);
  const std::string text = given->get<std::string>();
  absl::string_view name = text;
  config.gated_mlp = absl::ConsumePrefix(&name, "gated-");
  if (text == "gated-gelu") name = "gelu_new";
  for (const auto& [known, activation] : kActivations) {
    if (name != known) continue;
    config.activation = activation;
    return;
  }
  RefuseProjection(fields);
}

void ReadSizes(JsonFields& fields, ModelConfig& config) {
  const int64_t encoder = fields.Integer("num_layers", kLayers);
  config.decoder_layers = fields.Integer("num_decoder_layers", kLayers, encoder);
  config.layers = encoder + config.decoder_layers;
  config.width = fields.Integer("d_model", kWidths);
  config.heads = config.kv_heads = fields.Integer("num_heads", kHeads);
  config.head_width = fields.Integer("d_kv", kWidths);
  if (config.head_width % 2 != 0) fields.Refuse("d_kv", "an even number");
  config.mlp_width = fields.Integer("d_ff", kMlpWidths);
  config.vocabulary = fields.Integer("vocab_size", kVocabularies);
  config.max_positions = kPositions;
}

// Half of a side's buckets are for a distance each, of the encoder's two sides too.
void ReadDistances(JsonFields& fields, ModelConfig& config) {
  Distances& distances = config.distances;
  distances.buckets = fields.Integer("relative_attention_num_buckets", kBuckets, 32);
  distances.farthest = fields.Integer("relative_attention_max_distance", kFarthest, 128);
  if (distances.farthest <= distances.buckets / 2)
    fields.Refuse(
        "relative_attention_max_distance",
        absl::StrCat("more than half of relative_attention_num_buckets = ", distances.buckets));
}

// Both halves, or files of the encoder alone: with a head, or without one, which transformers calls
// is_encoder_decoder: false.
void ReadTask(JsonFields& fields, ModelConfig& config) {
  const json* named = fields.Find("architectures");
  const json whole = json::array({kT5.architecture}), encoder = json::array({"T5EncoderModel"}),
             classifier = json::array({kT5.token_classifier});
  // The head of an encoder is drawn as wide, in transformers.
  config.head_spread = fields.Real("initializer_factor", {0.0, 100.0}, 1.0);
  config.classifier_dropout = fields.Real("classifier_dropout", kDropouts, 0.0);
  config.task = Task::kSeq2SeqLm;
  if (named == nullptr || *named == whole) return fields.MustBe("is_encoder_decoder", true);
  if (*named != encoder && *named != classifier) {
    return fields.Refuse("architectures",
                         absl::StrCat(whole.dump(), ", ", encoder.dump(), ", ", classifier.dump()));
  }
  config.task = Task::kTokenClassification;
  config.new_head = *named == encoder;
  config.tied_embeddings = false;
  KeepEncoder(config);
}

void Read(JsonFields& fields, ModelConfig& config) {
  ReadSizes(fields, config);
  ReadDistances(fields, config);
  ReadProjection(fields, config);
  config.norm_epsilon = fields.Real("layer_norm_epsilon", {0.0, 1.0}, 1e-6);
  config.query_scalar = 1.0;  // Scores are not scaled.
  config.hidden_dropout = config.attention_dropout = fields.Real("dropout_rate", kDropouts, 0.1);
  config.tied_embeddings = fields.Boolean("tie_word_embeddings", true);
  const bool scales = fields.Boolean("scale_decoder_outputs", config.tied_embeddings);
  config.head_scale = scales ? 1.0 / std::sqrt(static_cast<double>(config.width)) : 1.0;
  config.pad_token = fields.Integer("pad_token_id", kIds, 0);
  config.start_token = fields.Integer("decoder_start_token_id", kIds, config.pad_token);
  for (const char* field : {"pad_token_id", "decoder_start_token_id"}) {
    const int64_t id = field[0] == 'p' ? config.pad_token : config.start_token;
    if (id >= config.vocabulary)
      fields.Refuse(field, absl::StrCat("less than vocab_size = ", config.vocabulary));
  }
  fields.MustBe("is_decoder", false);
  ReadTask(fields, config);
}

}  // namespace

const Family kT5 = {.model_type = "t5",
                    .architecture = "T5ForConditionalGeneration",
                    .classifier = "",
                    .max_positions = kPositions,
                    .encoder_decoder = true,
                    .token_classifier = "T5ForTokenClassification",
                    .base = "transformer",
                    .in_floats = "wo",
                    .traits = {.embedding = "shared", .layers = "encoder.block."},
                    .read = Read};

}  // namespace snug::program
