// The spellings, by version of transformers:
//   4.31  "rope_theta": 1e4, "rope_scaling": null or {"type": "linear", "factor": 2.0}
//   4.43  the same with "rope_type" for "type", and llama3 with its four parameters
//   5.0   "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, ...}, always there
// A file may mix them (a conversion, a note left by another tool). What is said twice must be said
// alike: versions 4 and 5 disagree about which of two values wins.
#include "worker/program/rope_config.h"

#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/program/json_fields.h"

namespace snug::program {
namespace {

using nlohmann::json;
using Kind = RopeScaling::Kind;

constexpr JsonFields::RealRange kThetas = {1.0, 1e12};
constexpr JsonFields::RealRange kFactors = {1.0, 1e6};
constexpr JsonFields::RealRange kFrequencyFactors = {1e-3, 1e6};
constexpr JsonFields::Range kPositions = {1, 4'000'000};
constexpr double kDefaultTheta = 10'000.0;  // LlamaConfig's.

struct KindSpelling {
  Kind kind;
  std::string name;
  std::vector<std::string> parameters;
};

const std::vector<KindSpelling>& Kinds() {
  static const auto* kinds = new std::vector<KindSpelling>{
      {Kind::kDefault, "default", {}},
      {Kind::kLinear, "linear", {"factor"}},
      {Kind::kLlama3,
       "llama3",
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}},
  };
  return *kinds;
}

// Reads one rope_parameters or rope_scaling object.
class RopeReader {
 public:
  RopeReader(const json& document, const std::string& name, std::vector<std::string>* violations)
      : name_(name),
        object_(document.at(name)),
        fields_(object_, absl::StrCat(name, "."), violations),
        top_level_(document, "", violations) {}

  RopeScaling Read() {
    RopeScaling scaling;
    const KindSpelling* spelling = FindKind();
    if (spelling == nullptr) return scaling;
    scaling.kind = spelling->kind;
    RefuseOthers(*spelling);
    if (scaling.kind == Kind::kDefault) return scaling;
    scaling.factor = fields_.Real("factor", kFactors);
    if (scaling.kind == Kind::kLlama3) ReadLlama3(scaling);
    return scaling;
  }

 private:
  const KindSpelling* FindKind() {
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
      if (*value == kind.name) return &kind;
      names.push_back(absl::StrCat("\"", kind.name, "\""));
    }
    fields_.Refuse(field, absl::StrJoin(names, ", "));
    return nullptr;
  }

  // A parameter that this kind does not use is a mistake, or a kind that we do not know: either way
  // not what its author meant.
  void RefuseOthers(const KindSpelling& spelling) {
    fields_.MustBe("partial_rotary_factor", 1);
    for (const auto& [key, value] : object_.items()) {
      if (key == "rope_type" || key == "type" || key == "rope_theta") continue;
      if (key == "partial_rotary_factor" || value.is_null()) continue;
      if (absl::c_linear_search(spelling.parameters, key)) continue;
      fields_.Refuse(key, absl::StrCat("no such field with rope_type \"", spelling.name, "\""));
    }
  }

  void ReadLlama3(RopeScaling& scaling) {
    scaling.low_freq_factor = fields_.Real("low_freq_factor", kFrequencyFactors);
    scaling.high_freq_factor = fields_.Real("high_freq_factor", kFrequencyFactors);
    if (scaling.high_freq_factor > 0 && scaling.high_freq_factor <= scaling.low_freq_factor) {
      fields_.Refuse("high_freq_factor",
                     absl::StrCat("more than low_freq_factor = ", scaling.low_freq_factor));
    }
    scaling.original_max_positions = OriginalMaxPositions();
  }

  // Version 5 prefers the field beside rope_parameters, version 4 knows only the one inside.
  int64_t OriginalMaxPositions() {
    constexpr char kField[] = "original_max_position_embeddings";
    const json* inside = fields_.Find(kField);
    const json* beside = top_level_.Find(kField);
    if (inside == nullptr && beside != nullptr) return top_level_.Integer(kField, kPositions);
    if (inside != nullptr && beside != nullptr && *inside != *beside) {
      top_level_.Refuse(kField, absl::StrCat("the same as ", name_, ".", kField));
    }
    return fields_.Integer(kField, kPositions);
  }

  const std::string name_;
  const json& object_;
  JsonFields fields_;
  JsonFields top_level_;
};

bool Same(const RopeScaling& a, const RopeScaling& b) {
  return a.kind == b.kind && a.factor == b.factor && a.low_freq_factor == b.low_freq_factor &&
         a.high_freq_factor == b.high_freq_factor &&
         a.original_max_positions == b.original_max_positions;
}

// The names of the objects that are there; {} says as little as null.
std::vector<std::string> FindObjects(const json& document, std::vector<std::string>* violations) {
  std::vector<std::string> names;
  JsonFields fields(document, "", violations);
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

void ReadTheta(const json& document, const std::vector<std::string>& objects, ModelConfig& config,
               std::vector<std::string>* violations) {
  std::optional<double> theta;
  const auto take = [&](const json& object, const std::string& prefix) {
    JsonFields fields(object, prefix, violations);
    if (fields.Find("rope_theta") == nullptr) return;
    const double value = fields.Real("rope_theta", kThetas);
    if (theta.has_value() && *theta != value) {
      fields.Refuse("rope_theta", absl::StrCat(*theta, ", which the file says elsewhere"));
    }
    theta = value;
  };
  take(document, "");
  for (const std::string& name : objects) take(document.at(name), absl::StrCat(name, "."));
  config.rope_theta = theta.value_or(kDefaultTheta);
}

}  // namespace

void ReadRope(const json& document, ModelConfig& config, std::vector<std::string>* violations) {
  JsonFields(document, "", violations).MustBe("partial_rotary_factor", 1);
  const std::vector<std::string> objects = FindObjects(document, violations);
  ReadTheta(document, objects, config, violations);
  for (const std::string& name : objects) {
    const RopeScaling scaling = RopeReader(document, name, violations).Read();
    if (name != objects.front() && !Same(scaling, config.rope_scaling)) {
      violations->push_back(absl::StrCat(name, " and ", objects.front(),
                                         " differ; accepted: one of them, or both alike"));
    }
    config.rope_scaling = scaling;
  }
}

}  // namespace snug::program
