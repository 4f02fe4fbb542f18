// What a config.json may say, and what it means: here what all families share.
//
// The oracle is transformers: a field that its class has a default for may be missing and means
// that default; a field that changes what transformers computes and that no program here
// computes is refused; fields that change nothing (caches, generation settings, notes of other
// tools) are passed over. Where versions 4 and 5 read one file differently, the file is refused.
//
// One field is passed over that does change something: transformers never trains the embedding of
// pad_token_id. Rows have no padding here, so that a text with that token trains it like any other.
#include "worker/program/model_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/snug/status_macros.h"
#include "worker/program/families/family.h"
#include "worker/program/files/json.h"
#include "worker/program/files/json_fields.h"
#include "worker/program/files/packed_tensors.h"
#include "worker/program/files/safetensors.h"
#include "worker/program/stages.h"

namespace snug::program {
namespace {

using nlohmann::json;

// Beyond any model there is, and small enough that the parameters they allow, 2^55, are counted
// without overflow.
constexpr int64_t kMaxWidth = 65'536;
constexpr int64_t kMaxMlpWidth = 1'048'576;
constexpr int64_t kMaxLayers = 1'024;
constexpr int64_t kMaxHeads = 1'024;
constexpr int64_t kMaxVocabulary = 4'000'000;
constexpr int64_t kMaxGrownVocabulary = int64_t{1} << 31;  // By ids of added tokens.
constexpr int64_t kMaxPositions = 4'000'000;
constexpr int64_t kMaxParameters = 10'000'000'000'000;
constexpr size_t kMaxSkipped = 1'024;  // Names of modules; dynamic quantisation gives some 100.
constexpr JsonFields::RealRange kSpreads = {0.0, 100.0};
constexpr JsonFields::RealRange kDropouts = {0.0, 0.99};

const Family* const kFamilies[] = {&kLlama,      &kMistral, &kQwen2, &kQwen3,   &kGemma2,
                                   &kGemma3,     &kPhi3,    &kBert,  &kRoberta, &kXlmRoberta,
                                   &kDistilBert, &kT5,      &kVit,   &kDeit,    &kSwin};

const Family* FindFamily(const std::string& model_type) {
  const auto* found = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                   [&](const Family* f) { return model_type == f->model_type; });
  return found == std::end(kFamilies) ? nullptr : *found;
}

// Null for a model of another family.
const Family* FindFamily(JsonFields& fields, ModelConfig& config) {
  const json* type = fields.Find("model_type");
  std::vector<std::string> names;
  for (const Family* family : kFamilies) {
    if (type != nullptr && *type == family->model_type) return family;
    names.push_back(absl::StrCat("\"", family->model_type, "\""));
    config.reversible = family->reversible && type != nullptr &&
                        *type == absl::StrCat(kReversibleType, family->model_type);
    if (config.reversible) return family;
  }
  fields.Refuse("model_type", absl::StrJoin(names, ", "));
  return nullptr;
}

// Fields of which one value is computed here, and on which transformers acts whatever the family.
void RefuseWhatIsNotComputed(JsonFields& fields) {
  MustBeAbsent(fields, {"compression_config", "per_layer_config", "attention_chunk_size"});
}

// The modules that are not in codes, as transformers names them. It takes each for a regular
// expression; here a name is one.
void ReadSkipped(JsonFields& parts, ModelConfig& config) {
  const json* names = parts.Find("llm_int8_skip_modules");
  if (names == nullptr) return;
  const auto is_name = [](const json& name) {
    return name.is_string() && !name.get<std::string>().empty() &&
           absl::c_all_of(name.get<std::string>(), [](char c) {
             return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
           });
  };
  if (!names->is_array() || names->size() > kMaxSkipped || !absl::c_all_of(*names, is_name))
    return parts.Refuse(
        "llm_int8_skip_modules",
        absl::StrCat("at most ", kMaxSkipped, " names of modules, of letters, digits, _ and ."));
  for (const json& name : *names) config.in_floats.push_back(name.get<std::string>());
}

// Of files whose weights are in codes; see files/packed_tensors.h.
void ReadQuantization(JsonFields& fields, const Family& family, ModelConfig& config) {
  const json* read = fields.Find("quantization_config");
  if (read == nullptr) return;
  const json object = read->is_object() ? *read : json::object();
  JsonFields parts(object, "quantization_config.", &fields.violations());
  const auto is = [&](const char* name, const json& value, const json& absent) {
    const json* found = parts.Find(name);
    return (found == nullptr ? absent : *found) == value;
  };
  // Older files do not name the method.
  const bool bitsandbytes = is("quant_method", "bitsandbytes", "bitsandbytes");
  const bool nf4 = is("load_in_4bit", true, false) && is("bnb_4bit_quant_type", "nf4", "fp4") &&
                   is("bnb_4bit_quant_storage", "uint8", "uint8");
  const bool int8 = is("load_in_8bit", true, false);
  if (!bitsandbytes || nf4 == int8)
    return fields.Refuse("quantization_config",
                         "no such field, or bitsandbytes' with load_in_8bit, or with load_in_4bit, "
                         "bnb_4bit_quant_type nf4 and bnb_4bit_quant_storage uint8");
  config.quantization = nf4 ? Quantization::kNf4 : Quantization::kInt8;
  if (*family.in_floats != '\0') config.in_floats.emplace_back(family.in_floats);
  ReadSkipped(parts, config);
}

void RefuseOtherAttention(JsonFields& fields) {
  fields.MustBe("is_causal", true);
  fields.MustBe("is_encoder_decoder", false);
  fields.MustBe("add_cross_attention", false);
}

// The last field of a head of documents; one of tokens knows no problem.
void ReadProblem(JsonFields& fields, ModelConfig& config) {
  // Where the files do not say, transformers takes one output for a regression.
  if (config.labels == 1) config.problem = Problem::kRegression;
  const json* named = fields.Find("problem_type");
  if (named == nullptr) return;
  const auto problem = ProblemOfName(named->is_string() ? named->get<std::string>() : "");
  if (!problem) return fields.Refuse("problem_type", kProblemNames);
  config.problem = *problem;
}

// Of a head that the files have.
void ReadLabels(JsonFields& fields, ModelConfig& config) {
  const json* names = fields.Find("id2label");
  const bool named_labels = names != nullptr && names->is_object();
  const int64_t labels = named_labels ? static_cast<int64_t>(names->size()) : kDefaultLabels;
  config.labels = fields.Integer("num_labels", {1, kMaxLabels}, labels);
  if (config.task == Task::kSequenceClassification) ReadProblem(fields, config);
  const int64_t fewest = FewestLabels(config.problem);
  if (config.labels < fewest || config.labels > kMaxLabels) {
    fields.Refuse("id2label", absl::StrCat(fewest, " to ", kMaxLabels, " classes"));
  }
}

// The class of transformers that is a family's model without a head.
std::string HeadlessOf(const Family& family) {
  const absl::string_view name = family.architecture;
  return absl::StrCat(name.substr(0, name.find("For")), "Model");
}

// Images are trained for one class each. DeiT's with a teacher is published with two heads, which
// transformers trains no further; a new one takes their place.
void ReadImageTask(JsonFields& fields, const Family& family, ModelConfig& config) {
  const json* named = fields.Find("architectures");
  const json classifier = json::array({family.classifier});
  config.task = Task::kImageClassification;
  config.tied_embeddings = false;
  std::vector<json> headless = {json::array({HeadlessOf(family)})};
  if (config.distilled)
    headless.push_back(json::array({absl::StrCat(family.classifier, "WithTeacher")}));
  config.new_head = named != nullptr && absl::c_linear_search(headless, *named);
  if (!config.new_head && (named == nullptr || *named != classifier)) {
    std::string accepted = classifier.dump();
    for (const json& each : headless) absl::StrAppend(&accepted, ", ", each.dump());
    fields.Refuse("architectures", accepted);
  }
  const json* problem = fields.Find("problem_type");
  if (problem != nullptr && *problem != NameOf(Problem::kSingleLabel))
    fields.Refuse("problem_type", json(NameOf(Problem::kSingleLabel)).dump());
  ReadLabels(fields, config);
}

// Files may name a head of classes or one of masked tokens; where they name none, or a model that
// has none, a job says what they are trained for.
void ReadEncoderTask(JsonFields& fields, const Family& family, ModelConfig& config) {
  const json* named = fields.Find("architectures");
  const auto is = [&](const char* name) {
    return named != nullptr && *name != '\0' && *named == json::array({name});
  };
  if (is(family.classifier) || is(family.token_classifier)) {
    config.task =
        is(family.classifier) ? Task::kSequenceClassification : Task::kTokenClassification;
    config.tied_embeddings = false;
    return ReadLabels(fields, config);
  }
  config.task = Task::kMaskedLm;
  const json headless = json::array({HeadlessOf(family)});
  config.new_head = named == nullptr || *named == headless;
  if (config.new_head || is(family.architecture) || is(family.pretrained)) return;
  std::vector<std::string> accepted = {headless.dump()};
  for (const char* name :
       {family.classifier, family.token_classifier, family.architecture, family.pretrained}) {
    if (*name != '\0') accepted.push_back(json::array({name}).dump());
  }
  fields.Refuse("architectures", absl::StrJoin(accepted, ", "));
}

// The head that the model's files have.
void ReadTask(JsonFields& fields, const Family& family, ModelConfig& config) {
  if (config.of_images()) return ReadImageTask(fields, family, config);
  if (family.encoder) return ReadEncoderTask(fields, family, config);
  const json* named = fields.Find("architectures");
  const std::string prefix = config.reversible ? "Reversible" : "";
  const json causal = json::array({prefix + family.architecture});
  const json classifier = json::array({family.classifier});
  if (named == nullptr || *named == causal) return;
  if (*named != classifier) {
    return fields.Refuse("architectures", absl::StrCat(causal.dump(), ", ", classifier.dump()));
  }
  config.task = Task::kSequenceClassification;
  config.tied_embeddings = false;
  config.logit_softcap = 0.0;
  ReadLabels(fields, config);
}

// What a classification head needs, whether the files have one or a job asks for it.
void ReadHeadFields(JsonFields& fields, ModelConfig& config) {
  config.head_spread = fields.Real("initializer_range", kSpreads, 0.02);
  const json* pad = fields.Find("pad_token_id");
  if (pad != nullptr && pad->is_number_integer()) config.pad_token = pad->get<int64_t>();
}

// The weights' own dtype is in the weights' files; what stands here must only be one that they may
// have.
void CheckDtype(JsonFields& fields) {
  for (const char* field : {"dtype", "torch_dtype"}) {
    const json* value = fields.Find(field);
    if (value == nullptr) continue;
    if (*value != "float32" && *value != "bfloat16" && *value != "float16") {
      fields.Refuse(field, "\"float32\", \"bfloat16\", \"float16\"");
    }
  }
}

void ReadSizes(JsonFields& fields, const Family& family, ModelConfig& config) {
  config.layers = fields.Integer(family.sizes.layers, {1, kMaxLayers});
  config.width = fields.Integer(family.sizes.width, {1, kMaxWidth});
  config.mlp_width = fields.Integer(family.sizes.mlp_width, {1, kMaxMlpWidth});
  // Of images every token has the id 0, and their family counts them.
  config.vocabulary = family.images ? 1 : fields.Integer("vocab_size", {1, kMaxVocabulary});
  if (!family.images)
    config.max_positions =
        fields.Integer("max_position_embeddings", {1, kMaxPositions}, family.max_positions);
  config.norm_epsilon = fields.Real(family.encoder ? "layer_norm_eps" : "rms_norm_eps", {0.0, 1.0},
                                    family.norm_epsilon);
  config.tied_embeddings = fields.Boolean("tie_word_embeddings", family.tied_embeddings);
}

void ReadHeads(JsonFields& fields, const Family& family, ModelConfig& config) {
  config.heads = fields.Integer(family.sizes.heads, {1, kMaxHeads});
  const bool as_many = family.kv_heads == 0 || fields.IsNull("num_key_value_heads");
  config.kv_heads = fields.Integer("num_key_value_heads", {1, kMaxHeads},
                                   as_many ? config.heads : family.kv_heads);
  if (config.heads > 0 && config.kv_heads > 0 && config.heads % config.kv_heads != 0) {
    fields.Refuse("num_key_value_heads",
                  absl::StrCat("a divisor of num_attention_heads = ", config.heads));
  }
  if (fields.Find("head_dim") != nullptr || family.head_width != 0) {
    config.head_width = fields.Integer("head_dim", {2, kMaxWidth}, family.head_width);
    if (config.head_width % 2 != 0) fields.Refuse("head_dim", "an even number");
    return;
  }
  if (config.width == 0 || config.heads == 0) return;
  config.head_width = config.width / config.heads;
  if (config.width % (2 * config.heads) != 0) {
    fields.Refuse("head_dim",
                  absl::StrCat("an even number; ", family.sizes.width, " / ", family.sizes.heads,
                               " = ", config.width, " / ", config.heads, " is none"));
  }
}

// Only for sizes within the limits above. Without biases and further norms.
int64_t Parameters(const ModelConfig& config) {
  const int64_t attention = 2 * config.width * config.head_width * (config.heads + config.kv_heads);
  const int64_t mlp = 3 * config.width * config.mlp_width;
  const int64_t norms = 2 * config.width;
  const int64_t embeddings = (config.tied_embeddings ? 1 : 2) * config.vocabulary * config.width;
  return config.layers * (attention + mlp + norms) + embeddings + config.width;
}

// Of a family of one half.
void ReadAll(JsonFields& fields, const Family& family, ModelConfig& config) {
  if (!family.staged) {
    ReadSizes(fields, family, config);
    ReadHeads(fields, family, config);
  }
  family.read(fields, config);
  ReadTask(fields, family, config);
  ReadHeadFields(fields, config);
  RefuseOtherAttention(fields);
  if (!family.encoder) config.attention_dropout = fields.Real("attention_dropout", kDropouts, 0.0);
}

absl::StatusOr<ModelConfig> Interpret(const json& document, const std::string& where) {
  if (!document.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": not a JSON object"));
  }
  std::vector<std::string> violations;
  JsonFields fields(document, "", &violations);
  ModelConfig config;
  if (const Family* family = FindFamily(fields, config)) {
    config.model_type = family->model_type;
    if (family->encoder_decoder) {
      family->read(fields, config);
      if (config.classifies() && !config.new_head) ReadLabels(fields, config);
    } else {
      ReadAll(fields, *family, config);
    }
    RefuseWhatIsNotComputed(fields);
    ReadQuantization(fields, *family, config);
    CheckDtype(fields);
  }
  if (violations.empty() && Parameters(config) > kMaxParameters) {
    violations.push_back(
        absl::StrCat(Parameters(config), " parameters; accepted: at most ", kMaxParameters));
  }
  if (violations.empty()) return config;
  return absl::InvalidArgumentError(
      absl::StrCat(where, ":\n  ", absl::StrJoin(violations, "\n  ")));
}

}  // namespace

bool ModelConfig::slides(int64_t layer) const {
  return !sliding.empty() && sliding[static_cast<size_t>(layer)];
}

int64_t ModelConfig::special_tokens() const {
  if (!stages.empty()) return 0;
  return distilled ? 2 : 1;
}

int64_t ModelConfig::tokens_of_image() const {
  const int64_t side = image_size / patch_size;
  return side * side + special_tokens();
}

double ModelConfig::attention_scale() const {
  return 1.0 / std::sqrt(query_scalar > 0.0 ? query_scalar : static_cast<double>(head_width));
}

int64_t ModelConfig::rotary_width() const {
  if (encoder || has_source()) return 0;
  return static_cast<int64_t>(static_cast<double>(head_width) * rotary_share);
}

std::string BasePrefix(const ModelConfig& config) {
  const Family* family = FindFamily(config.model_type);
  return absl::StrCat(family == nullptr ? "model" : family->base, ".");
}

const EncoderTraits& TraitsOf(const ModelConfig& config) {
  const Family* family = FindFamily(config.model_type);
  return (family == nullptr ? kBert : *family).traits;
}

absl::Status MakeReversible(ModelConfig& config) {
  const Family* family = FindFamily(config.model_type);
  std::vector<std::string> names;
  for (const Family* other : kFamilies) {
    if (other->reversible) names.emplace_back(other->model_type);
  }
  if (family == nullptr || !family->reversible)
    return absl::InvalidArgumentError(absl::StrCat("reversible: native is for ",
                                                   absl::StrJoin(names, ", "), "; the model is ",
                                                   config.model_type));
  if (config.classifies())
    return absl::InvalidArgumentError(
        "reversible: native is for task: causal_lm; this job's is sequence_classification");
  config.reversible = true;
  return absl::OkStatus();
}

std::string ArchitectureOf(const ModelConfig& config) {
  const Family* family = FindFamily(config.model_type);
  if (family == nullptr) return "";
  if (config.task == Task::kTokenClassification) return family->token_classifier;
  return config.classifies() ? family->classifier : family->architecture;
}

namespace {

absl::Status CheckStages(const ModelConfig& config) {
  bool good = FindFamily(config.model_type)->staged != config.stages.empty();
  good = good && config.stages.size() <= size_t{kMostStages} && config.drop_path >= 0.0 &&
         config.drop_path < 1.0 && config.window_side >= 0 && config.window_side <= kMaxImageSize;
  for (size_t stage = 0; good && stage < config.stages.size(); ++stage) {
    const auto& [layers, heads] = config.stages[stage];
    good = layers >= 1 && layers <= kMaxLayers && heads >= 1 && heads <= kMaxHeads &&
           (config.width >> (config.stages.size() - 1 - stage)) % (2 * heads) == 0;
  }
  if (good && !config.stages.empty())
    good = config.layers == LayersOf(config) && config.heads == config.stages.back().heads &&
           config.width % (int64_t{1} << (config.stages.size() - 1)) == 0 &&
           config.head_width * config.heads == config.width && StagesFit(config);
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError("a model's stages or windows are outside their limits");
}

absl::Status CheckHalves(const ModelConfig& config) {
  const bool of_two = FindFamily(config.model_type)->encoder_decoder;
  const bool halves = of_two && !config.encoder;  // Else its encoder alone.
  if (halves != config.has_source() || halves != (config.task == Task::kSeq2SeqLm))
    return absl::InvalidArgumentError("a model of two halves without a decoder, or the reverse");
  if (of_two && !halves && config.task != Task::kTokenClassification)
    return absl::InvalidArgumentError("an encoder of two halves without a head for tokens");
  const bool starts = config.start_token >= 0 && config.start_token < config.vocabulary;
  if (of_two ? starts && config.distances.within_limits() : config.distances.buckets == 0)
    return absl::OkStatus();
  return absl::InvalidArgumentError("a decoder's distances or start are outside their limits");
}

}  // namespace

absl::Status CheckModelConfig(const ModelConfig& config) {
  const auto within = [](int64_t value, int64_t most) { return value >= 1 && value <= most; };
  const bool known = FindFamily(config.model_type) != nullptr;
  const bool sized = within(config.layers, kMaxLayers) && within(config.width, kMaxWidth) &&
                     within(config.mlp_width, kMaxMlpWidth) && within(config.heads, kMaxHeads) &&
                     within(config.kv_heads, kMaxHeads) && within(config.head_width, kMaxWidth) &&
                     within(config.vocabulary, kMaxGrownVocabulary) &&
                     within(config.max_positions, kMaxPositions) && config.window >= 0 &&
                     config.token_types >= 0 && config.token_types <= kMaxVocabulary &&
                     config.first_position >= 0 && config.first_position <= kMaxPositions &&
                     config.file_vocabulary >= 0 && config.first_added >= 0 &&
                     (!config.classifies() || within(config.labels, kMaxLabels)) &&
                     config.decoder_layers >= 0 && config.decoder_layers < config.layers;
  if (known) RETURN_IF_ERROR(CheckHalves(config));
  const bool images = config.of_images() || config.task == Task::kImageClassification;
  if (images &&
      !(config.task == Task::kImageClassification && config.encoder &&
        within(config.image_size, kMaxImageSize) && within(config.patch_size, config.image_size) &&
        config.image_size % config.patch_size == 0 && within(config.image_channels, 3) &&
        config.max_positions == config.tokens_of_image()))
    return absl::InvalidArgumentError("an image's sizes are outside their limits");
  if (!known || !sized || config.heads % config.kv_heads != 0 || config.head_width % 2 != 0)
    return absl::InvalidArgumentError("a model's sizes are outside their limits");
  RETURN_IF_ERROR(CheckStages(config));
  if (config.task == Task::kTokenClassification && !config.encoder)
    return absl::InvalidArgumentError("a model of token classes that is no encoder");
  if (config.task == Task::kMaskedLm &&
      (!config.encoder || !config.tied_embeddings || config.of_images()))
    return absl::InvalidArgumentError("a model of masked tokens without such a head");
  if (config.reversible && !FindFamily(config.model_type)->reversible)
    return absl::InvalidArgumentError("a model of a family that has no two streams");
  if (!config.sliding.empty() && config.sliding.size() != static_cast<size_t>(config.layers))
    return absl::InvalidArgumentError("not every layer of a model is said to slide or not");
  return absl::OkStatus();
}

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text, std::string_view where) {
  const std::string name(where);
  ASSIGN_OR_RETURN(const json document, ParseJson(text, name, JsonLimits()));
  return Interpret(document, name);
}

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& model_dir) {
  const std::string path = absl::StrCat(model_dir, "/config.json");
  ASSIGN_OR_RETURN(const json document, ReadJsonFile(path, JsonLimits()));
  ASSIGN_OR_RETURN(ModelConfig config, Interpret(document, path));
  if (config.quantization == Quantization::kNone) return config;
  ASSIGN_OR_RETURN(const TensorIndex index, ReadModelIndex(model_dir, config));
  config.outer_codes = CodesOutsideLayers(index);
  return config;
}

}  // namespace snug::program
