// The spellings, by version of transformers:
//   4.31  "rope_theta": 1e4, "rope_scaling": null or {"type": "linear", "factor": 2.0}
//   4.43  the same with "rope_type" for "type", and kinds with more parameters
//   4.50  for Gemma 3 also "rope_local_base_freq": 1e4
//   5.0   "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, ...}, always there; for
//         Gemma 3 one such object per kind of layer
// A file may mix them (a conversion, a note left by another tool). What is said twice must be said
// alike: versions 4 and 5 disagree about which of two values wins.
#include "worker/program/rope_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace snug::program {
namespace {

using nlohmann::json;
using Kind = RopeScaling::Kind;

constexpr JsonFields::RealRange kThetas = {1.0, 1e12};
constexpr JsonFields::RealRange kFactors = {1.0, 1e6};
constexpr JsonFields::RealRange kFrequencyFactors = {1e-3, 1e6};
constexpr JsonFields::RealRange kAttentionFactors = {1e-3, 1e3};
constexpr JsonFields::RealRange kShares = {0.0, 1.0};
constexpr JsonFields::Range kPositions = {1, 4'000'000};
constexpr double kDefaultTheta = 10'000.0;
constexpr double kDefaultGlobalTheta = 1'000'000.0;  // Gemma3TextConfig's.
constexpr char kOriginal[] = "original_max_position_embeddings";

struct KindSpelling {
  Kind kind;
  std::string name;
  std::vector<std::string> parameters;
};

const std::vector<KindSpelling>& Kinds() {
  static const auto* kinds = new std::vector<KindSpelling>{
      {Kind::kDefault, "default", {}},
      {Kind::kLinear, "linear", {"factor"}},
      {Kind::kLlama3, "llama3", {"factor", "low_freq_factor", "high_freq_factor", kOriginal}},
      {Kind::kYarn,
       "yarn",
       {"factor", kOriginal, "attention_factor", "beta_fast", "beta_slow", "mscale",
        "mscale_all_dim", "truncate"}},
  };
  return *kinds;
}

// Of the yarn paper (Peng et al. 2023, section 3.4), as transformers computes it.
double YarnScale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// Reads one rope_parameters or rope_scaling object.
class RopeReader {
 public:
  // `name`: how messages call the object. `file`: the whole config.json.
  RopeReader(const json& object, const std::string& name, JsonFields& file)
      : name_(name),
        object_(object),
        fields_(object_, absl::StrCat(name, "."), &file.violations()),
        file_(file) {}

  RopeScaling Read(const RopeRules& rules, int64_t max_positions) {
    RopeScaling scaling;
    const KindSpelling* spelling = FindKind(rules);
    if (spelling == nullptr) return scaling;
    scaling.kind = spelling->kind;
    RefuseOthers(*spelling);
    if (scaling.kind == Kind::kLinear) scaling.factor = fields_.Real("factor", kFactors);
    if (scaling.kind == Kind::kLlama3) ReadLlama3(scaling);
    if (scaling.kind == Kind::kYarn) ReadYarn(scaling, max_positions);
    return scaling;
  }

 private:
  const KindSpelling* FindKind(const RopeRules& rules) {
    const json* named = fields_.Find("rope_type");
    const json* formerly = fields_.Find("type");
    if (named != nullptr && formerly != nullptr && *named != *formerly) {
      fields_.Refuse("type", absl::StrCat("the same as ", name_, ".rope_type, or no such field"));
    }
    const char* field = named == nullptr && formerly != nullptr ? "type" : "rope_type";
    const json* value = fields_.Find(field);
    if (value == nullptr) return &Kinds().front();  // As version 5 reads it.
    std::vector<std::string> names;
    for (const KindSpelling& kind : Kinds()) {
      if (!absl::c_linear_search(rules.kinds, kind.kind)) continue;
      if (*value == kind.name) return &kind;
      names.push_back(absl::StrCat("\"", kind.name, "\""));
    }
    const bool by_length = *value == "dynamic" || *value == "longrope" || *value == "su";
    fields_.Refuse(
        field, absl::StrCat(absl::StrJoin(names, ", "),
                            by_length ? " (not what changes with the lengths in a batch)" : ""));
    return nullptr;
  }

  // A parameter that this kind does not use is a mistake, or a kind that we do not know: either way
  // not what its author meant.
  void RefuseOthers(const KindSpelling& spelling) {
    for (const auto& [key, value] : object_.items()) {
      if (key == "rope_type" || key == "type" || key == "rope_theta") continue;
      if (key == "partial_rotary_factor" || value.is_null()) continue;
      if (absl::c_linear_search(spelling.parameters, key)) continue;
      fields_.Refuse(key, absl::StrCat("no such field with rope_type \"", spelling.name, "\""));
    }
  }

  void ReadLlama3(RopeScaling& scaling) {
    scaling.factor = fields_.Real("factor", kFactors);
    scaling.low_freq_factor = fields_.Real("low_freq_factor", kFrequencyFactors);
    scaling.high_freq_factor = fields_.Real("high_freq_factor", kFrequencyFactors);
    if (scaling.high_freq_factor > 0 && scaling.high_freq_factor <= scaling.low_freq_factor) {
      fields_.Refuse("high_freq_factor",
                     absl::StrCat("more than low_freq_factor = ", scaling.low_freq_factor));
    }
    scaling.original_max_positions = OriginalMaxPositions({});
  }

  void ReadYarn(RopeScaling& scaling, int64_t max_positions) {
    scaling.original_max_positions = OriginalMaxPositions(max_positions);
    std::optional<double> stretch;  // Where `factor` is null.
    if (fields_.IsNull("factor") && scaling.original_max_positions > 0) {
      stretch =
          static_cast<double>(max_positions) / static_cast<double>(scaling.original_max_positions);
    }
    scaling.factor = fields_.Real("factor", kFactors, stretch);
    scaling.beta_fast = fields_.Real("beta_fast", kFrequencyFactors, 32.0);
    scaling.beta_slow = fields_.Real("beta_slow", kFrequencyFactors, 1.0);
    scaling.truncate = fields_.Boolean("truncate", true);
    scaling.attention_factor = AttentionFactor(scaling.factor);
  }

  double AttentionFactor(double factor) {
    if (fields_.Find("attention_factor") != nullptr) {
      return fields_.Real("attention_factor", kAttentionFactors);
    }
    const double mscale = fields_.Real("mscale", kAttentionFactors, 0.0);
    const double of_all = fields_.Real("mscale_all_dim", kAttentionFactors, 0.0);
    if (mscale == 0.0 || of_all == 0.0) return YarnScale(factor, 1.0);
    return YarnScale(factor, mscale) / YarnScale(factor, of_all);
  }

  // Version 5 prefers the field beside rope_parameters, version 4 knows only the one inside.
  int64_t OriginalMaxPositions(std::optional<int64_t> absent) {
    const json* inside = fields_.Find(kOriginal);
    const json* beside = file_.Find(kOriginal);
    if (inside == nullptr && beside != nullptr) return file_.Integer(kOriginal, kPositions);
    if (inside != nullptr && beside != nullptr && *inside != *beside) {
      file_.Refuse(kOriginal, absl::StrCat("the same as ", name_, ".", kOriginal));
    }
    return fields_.Integer(kOriginal, kPositions, absent);
  }

  const std::string name_;
  const json& object_;
  JsonFields fields_;
  JsonFields& file_;
};

// A number that the file may say beside the objects and in each of them, alike everywhere.
class SaidAlike {
 public:
  SaidAlike(const char* name, JsonFields::RealRange range) : name_(name), range_(range) {}

  void Take(JsonFields& fields) {
    if (fields.Find(name_) == nullptr) return;
    const double value = fields.Real(name_, range_);
    if (value_.has_value() && *value_ != value) {
      fields.Refuse(name_, absl::StrCat(*value_, ", which the file says elsewhere"));
    }
    value_ = value;
  }
  double Or(double absent) const { return value_.value_or(absent); }

 private:
  const char* name_;
  JsonFields::RealRange range_;
  std::optional<double> value_;
};

// The names of the objects that are there; {} says as little as null.
std::vector<std::string> FindObjects(JsonFields& fields) {
  std::vector<std::string> names;
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const json* value = fields.Find(name);
    if (value == nullptr) continue;
    if (!value->is_object()) {
      fields.Refuse(name, "an object, null");
    } else if (!value->empty()) {
      names.push_back(name);
    }
  }
  return names;
}

struct Defaults {
  RopeRules rules;
  double theta = kDefaultTheta;
};

void ReadFlat(JsonFields& file, const Defaults& defaults, ModelConfig& config) {
  const std::vector<std::string> objects = FindObjects(file);
  SaidAlike theta("rope_theta", kThetas), share("partial_rotary_factor", kShares);
  theta.Take(file);
  share.Take(file);
  for (const std::string& name : objects) {
    const json& object = file.object().at(name);
    JsonFields fields(object, absl::StrCat(name, "."), &file.violations());
    theta.Take(fields);
    share.Take(fields);
    if (!defaults.rules.partial) fields.MustBe("partial_rotary_factor", 1);
    const RopeScaling scaling =
        RopeReader(object, name, file).Read(defaults.rules, config.max_positions);
    if (name != objects.front() && scaling != config.rope_scaling) {
      file.violations().push_back(absl::StrCat(name, " and ", objects.front(),
                                               " differ; accepted: one of them, or both alike"));
    }
    config.rope_scaling = scaling;
  }
  if (!defaults.rules.partial) file.MustBe("partial_rotary_factor", 1);
  config.rope_theta = theta.Or(defaults.theta);
  config.rotary_share = share.Or(1.0);
  if (config.head_width > 0 && (config.rotary_width() < 2 || config.rotary_width() % 2 != 0)) {
    file.Refuse("partial_rotary_factor",
                absl::StrCat("an even part of a head of ", config.head_width, " elements"));
  }
}

// One object per kind of layer. Returns the theta of `type`, whose scaling is in `scaling`.
double ReadOfType(JsonFields& file, const std::string& type, const Defaults& defaults,
                  RopeScaling& scaling) {
  const json& objects = file.object().at("rope_parameters");
  const auto object = objects.find(type);
  if (object == objects.end() || object->is_null()) return defaults.theta;
  const std::string name = absl::StrCat("rope_parameters.", type);
  if (!object->is_object()) {
    file.violations().push_back(absl::StrCat(name, " is not an object"));
    return defaults.theta;
  }
  scaling = RopeReader(*object, name, file).Read(defaults.rules, /*max_positions=*/0);
  JsonFields fields(*object, absl::StrCat(name, "."), &file.violations());
  fields.MustBe("partial_rotary_factor", 1);
  return fields.Real("rope_theta", kThetas, defaults.theta);
}

bool SaysLayerTypes(const JsonFields& fields) {
  const json* objects = fields.Find("rope_parameters");
  return objects != nullptr && objects->is_object() &&
         (objects->contains("full_attention") || objects->contains("sliding_attention"));
}

}  // namespace

int64_t LongestSequence(const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  const auto stretched = [&](int64_t tokens) {
    const double longest = std::floor(scaling.factor * static_cast<double>(tokens));
    return std::max(config.max_positions, static_cast<int64_t>(longest));
  };
  switch (scaling.kind) {
    case Kind::kLinear:
      if (config.local_rope_theta > 0.0) break;  // Gemma 3 counts its stretched positions.
      return stretched(config.max_positions);
    case Kind::kLlama3:
    case Kind::kYarn:
      return stretched(scaling.original_max_positions);
    case Kind::kDefault:
      break;
  }
  return config.max_positions;
}

void ReadRope(JsonFields& fields, const RopeRules& rules, ModelConfig& config) {
  ReadFlat(fields, {.rules = rules}, config);
}

void ReadRopeOfLayerTypes(JsonFields& fields, ModelConfig& config) {
  const Defaults full = {.rules = {.kinds = {Kind::kDefault, Kind::kLinear}},
                         .theta = kDefaultGlobalTheta};
  const Defaults sliding = {.rules = {.kinds = {Kind::kDefault}}};
  if (!SaysLayerTypes(fields)) {
    ReadFlat(fields, full, config);
    config.local_rope_theta = fields.Real("rope_local_base_freq", kThetas, sliding.theta);
    return;
  }
  for (const char* field : {"rope_scaling", "rope_theta", "rope_local_base_freq"}) {
    fields.MustBe(field, nullptr);
  }
  fields.MustBe("partial_rotary_factor", 1);
  for (const auto& [type, object] : fields.object().at("rope_parameters").items()) {
    if (type == "full_attention" || type == "sliding_attention") continue;
    fields.violations().push_back(absl::StrCat(
        "rope_parameters.", type, "; accepted: ", "full_attention, sliding_attention"));
  }
  RopeScaling unscaled;
  config.rope_theta = ReadOfType(fields, "full_attention", full, config.rope_scaling);
  config.local_rope_theta = ReadOfType(fields, "sliding_attention", sliding, unscaled);
}

}  // namespace snug::program
