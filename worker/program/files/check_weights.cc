// What a program needs against what the files have, by name, shape and dtype.
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "worker/program/encoder_traits.h"
#include "worker/program/files/json.h"
#include "worker/program/files/packed_tensors.h"
#include "worker/program/files/safetensors.h"
#include "worker/program/quantization.h"

namespace snug::program {
namespace {

constexpr size_t kMaxNamed = 6;  // Of each kind of mistake: a wrong model makes hundreds.

std::string Shape(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

bool IsFloat(const std::string& dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

// Mistakes of one kind, of which the message names the first few.
class Mistakes {
 public:
  explicit Mistakes(std::string kind) : kind_(std::move(kind)) {}

  void Add(std::string one) {
    if (count_++ < kMaxNamed) named_.push_back(std::move(one));
  }

  void AppendTo(std::string* message) const {
    if (count_ == 0) return;
    absl::StrAppend(message, "\n  ", kind_, " (", count_, "): ", absl::StrJoin(named_, ", "));
    if (count_ > kMaxNamed) absl::StrAppend(message, ", ...");
  }

 private:
  std::string kind_;
  std::vector<std::string> named_;
  size_t count_ = 0;
};

class Comparison {
 public:
  explicit Comparison(const TensorIndex& index) : index_(index) {}

  // `why`: it has to be in no codes.
  void Expect(const std::string& key, const std::vector<int64_t>& shape,
              const std::string& why = "") {
    const TensorEntry* found = Find(key, shape);
    if (found == nullptr) return;
    const TensorEntry& entry = *found;
    const bool packed = entry.packed != nullptr;  // Its shape is then that of the codes.
    if (!packed && entry.shape != shape) {
      shape_.Add(absl::StrCat(Quote(key), " is ", Shape(entry.shape), ", expected ", Shape(shape),
                              ", in ", entry.file));
    }
    if (packed || !IsFloat(entry.dtype)) {
      dtype_.Add(absl::StrCat(Quote(key), " is ", entry.dtype, ", expected F32, BF16 or F16", why,
                              ", in ", entry.file));
    }
  }

  // A matrix of files that have such in codes. `why`: this one, too.
  void ExpectCodes(const Parameter& parameter, const std::string& why) {
    const TensorEntry* entry = Find(parameter.key, parameter.shape);
    if (entry == nullptr) return;
    const std::string wrong =
        entry->packed == nullptr
            ? absl::StrCat(entry->dtype, ", expected codes as of the others", why)
            : WrongCodes(parameter, *entry);
    if (!wrong.empty())
      dtype_.Add(absl::StrCat(Quote(parameter.key), " is ", wrong, ", in ", entry->file));
  }

  // Of two names for one matrix.
  void ExpectSameType(const std::string& key, const std::string& other) {
    const auto one = index_.find(key), two = index_.find(other);
    if (one == index_.end() || two == index_.end() || one->second.dtype == two->second.dtype)
      return;
    dtype_.Add(absl::StrCat(Quote(key), " is ", one->second.dtype, ", but ", Quote(other),
                            ", to which config.json ties it, is ", two->second.dtype, ", in ",
                            one->second.file));
  }

  template <typename Allowed>
  void RefuseOthers(const Allowed& allowed) {
    for (const auto& [key, entry] : index_) {
      if (expected_.contains(key) || allowed(key)) continue;
      extra_.Add(absl::StrCat(Quote(key), " ", Shape(entry.shape), " in ", entry.file));
    }
  }

  absl::Status Result(const std::string& what) const {
    std::string message;
    for (const Mistakes* kind : {&missing_, &shape_, &dtype_, &extra_}) kind->AppendTo(&message);
    if (message.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(what, ":", message));
  }

 private:
  // Null: it is missing, which is noted.
  const TensorEntry* Find(const std::string& key, const std::vector<int64_t>& shape) {
    expected_.insert(key);
    const auto found = index_.find(key);
    if (found != index_.end()) return &found->second;
    missing_.Add(absl::StrCat(Quote(key), " ", Shape(shape)));
    return nullptr;
  }

  const TensorIndex& index_;
  std::set<std::string> expected_;
  Mistakes missing_{"missing"};
  Mistakes shape_{"wrong shape"};
  Mistakes dtype_{"wrong dtype"};
  Mistakes extra_{"unexpected"};
};

// PEFT saves the base's own matrix beside an adapter of the embedding or the head.
bool IsBaseInAdapter(absl::string_view key) {
  if (!absl::ConsumePrefix(&key, kAdapterPrefix)) return false;
  if (!absl::ConsumeSuffix(&key, ".base_layer.weight")) return false;
  return key == kHeadPath || key == kEmbeddingPath;
}

// Computed from config.json, not learned; transformers saved them until 4.31.
bool IsSavedBuffer(const std::string& key) {
  if (absl::EndsWith(key, ".embeddings.position_ids")) return true;
  if (absl::EndsWith(key, ".attention.self.relative_position_index")) return true;
  return absl::StartsWith(key, "model.") && absl::EndsWith(key, "rotary_emb.inv_freq");
}

}  // namespace

namespace {

// The head of a language model, which one that classifies has no use for; and what else a head of
// its files has that is not read.
bool IsUnusedHead(const Program& program, const std::string& key) {
  const ModelConfig& config = program.config;
  // The first files of T5 have biases between the halves, which transformers passes over.
  if (config.has_source())
    return key == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
  if (!config.encoder) return config.new_head && key == kHeadKey;
  if (config.of_images() && config.new_head) {
    for (const char* head : {kClassifierPath, "cls_classifier", "distillation_classifier"}) {
      if (absl::StartsWith(key, absl::StrCat(head, "."))) return true;
    }
  }
  // Of both halves the other one.
  if (config.distances.buckets > 0)
    return absl::StartsWith(key, BasePrefix(config) + "decoder.") ||
           key == BasePrefix(config) + kHeadKey;
  const bool pools = config.pools && config.task == Task::kSequenceClassification;
  if (!pools && absl::StartsWith(key, BasePrefix(config) + "pooler.")) return true;
  // Of masked tokens the bias has two names, and BERT's files a head beside.
  if (config.task == Task::kMaskedLm)
    return key == absl::StrCat(HeadPathOf(config), ".bias") ||
           absl::StartsWith(key, "cls.seq_relationship.");
  return config.new_head && absl::StartsWith(key, TraitsOf(config).masked_head);
}

constexpr char kSkipped[] = "quantization_config.llm_int8_skip_modules";

// Where files have codes, why a parameter has to be in none; empty: nobody says so.
std::string WhyInFloats(const ModelConfig& config, const Parameter& parameter) {
  if (config.quantization == Quantization::kNone) return "";
  if (const std::string* name = NameInFloats(config, parameter))
    return absl::StrCat(" (", kSkipped, ", or transformers' class, names ", Quote(*name), ")");
  return parameter.trainable ? " (the job trains it whole: lora.modules_to_save)" : "";
}

// Why a matrix has to be in codes: what it is not among.
std::string WhyInCodes(const ModelConfig& config) {
  std::vector<std::string> names;
  for (const std::string& name : config.in_floats)
    if (names.size() < kMaxNamed) names.push_back(Quote(name));
  const bool more = names.size() < config.in_floats.size();
  return absl::StrCat(" (", kSkipped, " does not name it: [", absl::StrJoin(names, ", "),
                      more ? ", ...])" : "])");
}

// `may_draw`: the files are those that training starts from.
absl::Status CheckModel(const Program& program, const TensorIndex& index, int64_t vocabulary,
                        bool may_draw) {
  Comparison comparison(index);
  const ModelConfig& config = program.config;
  for (const Parameter& parameter : program.parameters) {
    const bool absent = !index.contains(parameter.key) || ReplacesHead(program.config, parameter);
    if (parameter.adapter || (may_draw && absent && IsDrawn(program.config, parameter))) continue;
    const std::string why_floats = WhyInFloats(config, parameter);
    if (config.quantization != Quantization::kNone && why_floats.empty() &&
        parameter.quantization != Quantization::kNone) {
      comparison.ExpectCodes(parameter, WhyInCodes(config));
      continue;
    }
    std::vector<int64_t> shape = parameter.shape;
    if (IsTable(parameter)) shape.front() = vocabulary;
    comparison.Expect(parameter.key, shape, why_floats);
  }
  // Other names for the embedding. What the header says of them must be what it says of that.
  for (const std::string& alias : EmbeddingAliasesOf(config)) {
    if (!index.contains(alias)) continue;
    comparison.Expect(alias, {vocabulary, config.width});
    comparison.ExpectSameType(alias, EmbeddingKeyOf(config));
  }
  comparison.RefuseOthers(
      [&](const std::string& key) { return IsSavedBuffer(key) || IsUnusedHead(program, key); });
  return comparison.Result("the weights are not those of the model that config.json describes");
}

}  // namespace

absl::Status CheckWeights(const Program& program, const TensorIndex& index) {
  return CheckModel(program, index, program.config.vocabulary, /*may_draw=*/false);
}

absl::Status CheckBaseWeights(const Program& program, const TensorIndex& index) {
  const ModelConfig& config = program.config;
  return CheckModel(program, index,
                    config.adds_tokens() ? config.file_vocabulary : config.vocabulary,
                    /*may_draw=*/true);
}

absl::Status CheckAdapter(const Program& program, const TensorIndex& index) {
  Comparison comparison(index);
  for (const Parameter& parameter : program.parameters) {
    if (InAdapterFile(parameter)) comparison.Expect(AdapterFileKey(parameter), parameter.shape);
  }
  // PEFT saves a tied matrix, trained whole, under both of its names.
  const std::string embedding = absl::StrCat(kAdapterPrefix, kEmbeddingKey);
  const std::string head = absl::StrCat(kAdapterPrefix, kHeadKey);
  const ModelConfig& config = program.config;
  if (config.tied_embeddings && SavesEmbedding(program) && index.contains(head)) {
    comparison.Expect(head, {config.vocabulary, config.width});
    comparison.ExpectSameType(head, embedding);
  }
  comparison.RefuseOthers(IsBaseInAdapter);
  return comparison.Result("the adapter is not one for this model, rank and target modules");
}

}  // namespace snug::program
