#include "worker/program/lora_targets.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/snug/status_macros.h"
#include "re2/re2.h"
#include "worker/program/files/json.h"

namespace snug::program {
namespace {

constexpr int64_t kMaxRank = 8192;  // Above the width of most models an adapter saves nothing.
constexpr int64_t kMaxRegexBytes = 1 << 20;  // Of a compiled one.

// Python's syntax but for look-around and back references, which RE2 does not have: it answers in
// time that grows with the path alone.
absl::StatusOr<std::unique_ptr<RE2>> Compile(const char* field, const std::string& regex) {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kMaxRegexBytes);
  auto compiled = std::make_unique<RE2>(regex, options);
  if (compiled->ok()) return compiled;
  return absl::InvalidArgumentError(
      absl::StrCat("lora.", field, ": ", Quote(regex), ": ", compiled->error()));
}

bool Contains(const std::vector<std::string>& names, const std::string& word) {
  return std::find(names.begin(), names.end(), word) != names.end();
}

// The whole path, or its end after a dot.
bool IsNamed(const std::string& path, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&path](const std::string& name) {
    return path == name || absl::EndsWith(path, "." + name);
  });
}

// A list of names or a regular expression.
class Selection {
 public:
  static absl::StatusOr<Selection> Make(const char* field, std::vector<std::string> names) {
    Selection selection;
    if (IsRegex(names)) {
      ASSIGN_OR_RETURN(selection.regex_, Compile(field, names.front()));
    } else {
      selection.names_ = std::move(names);
    }
    return selection;
  }
  bool Has(const std::string& path) const {
    return regex_ != nullptr ? RE2::FullMatch(path, *regex_) : IsNamed(path, names_);
  }

 private:
  std::vector<std::string> names_;
  std::unique_ptr<RE2> regex_;
};

// rank_pattern or alpha_pattern.
template <typename Value>
class Patterns {
 public:
  static absl::StatusOr<Patterns> Make(const char* field, const std::map<std::string, Value>& all) {
    Patterns patterns;
    patterns.field_ = field;
    for (const auto& [key, value] : all) {
      ASSIGN_OR_RETURN(auto regex, Compile(field, absl::StrCat("(.*\\.)?(", key, ")")));
      patterns.rows_.push_back({key, value, std::move(regex)});
    }
    return patterns;
  }

  absl::StatusOr<Value> Of(const std::string& path, Value otherwise) {
    const Row* found = nullptr;
    for (Row& row : rows_) {
      if (!RE2::FullMatch(path, *row.regex)) continue;
      row.used = true;
      if (found != nullptr && found->value != row.value) {
        return absl::InvalidArgumentError(
            absl::StrCat("lora.", field_, ": ", Quote(found->key), " and ", Quote(row.key),
                         " both match ", path, " and differ; PEFT takes whichever comes first"));
      }
      found = &row;
    }
    return found == nullptr ? otherwise : found->value;
  }

  absl::Status CheckUsed() const {
    for (const Row& row : rows_) {
      if (row.used) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("lora.", field_, ": ", Quote(row.key), " matches no adapted module"));
    }
    return absl::OkStatus();
  }

 private:
  struct Row {
    std::string key;
    Value value;
    std::unique_ptr<RE2> regex;
    bool used = false;
  };
  const char* field_ = "";
  std::vector<Row> rows_;
};

// "model.layers.3.mlp.up_proj" -> 3 and "mlp.up_proj".
struct InnerPath {
  int64_t layer;
  std::string path;
};
std::optional<InnerPath> InnerPathOf(const std::string& path) {
  static const RE2& layer = *new RE2(R"(.*?\.[^.]*\.(\d+)\.)");
  int64_t index = 0;
  re2::StringPiece rest(path);
  if (!RE2::Consume(&rest, layer, &index)) return std::nullopt;
  return InnerPath{index, std::string(rest.data(), rest.size())};
}
std::optional<int64_t> LayerOf(const std::string& path) {
  const std::optional<InnerPath> inner = InnerPathOf(path);
  return inner ? std::optional(inner->layer) : std::nullopt;
}

class Rules {
 public:
  static absl::StatusOr<Rules> Make(const LoraConfig& lora) {
    Rules rules(lora);
    ASSIGN_OR_RETURN(rules.targets_, Selection::Make("target_modules", lora.target_modules));
    ASSIGN_OR_RETURN(rules.excluded_, Selection::Make("exclude_modules", lora.exclude_modules));
    for (const std::string& name : lora.modules_to_save) {
      ASSIGN_OR_RETURN(auto kept_out, Compile("modules_to_save",
                                              absl::StrCat("^(?:(^|.*\\.)", name, "($|\\..*))")));
      rules.kept_out_.push_back(std::move(kept_out));
    }
    return rules;
  }

  bool all_linear() const { return Named(kAllLinear); }

  bool Targets(const std::string& path, bool linear) const {
    const bool excluded =
        excluded_.Has(path) ||
        std::any_of(kept_out_.begin(), kept_out_.end(),
                    [&path](const auto& name) { return RE2::PartialMatch(path, *name); });
    if (excluded) return false;
    if (linear && all_linear()) return true;
    // PEFT asks for the layer of what is named by its end alone.
    return Named(path) || (targets_.Has(path) && IsInLayers(path));
  }

  bool Saves(const std::string& path) const {
    return std::any_of(lora_.modules_to_save.begin(), lora_.modules_to_save.end(),
                       [&path](const std::string& name) { return absl::EndsWith(path, name); });
  }

 private:
  explicit Rules(const LoraConfig& lora) : lora_(lora) {}

  bool Named(const std::string& word) const { return Contains(lora_.target_modules, word); }

  bool IsInLayers(const std::string& path) const {
    const auto& layers = lora_.layers_to_transform;
    if (layers.empty()) return true;
    const std::optional<int64_t> layer = LayerOf(path);
    return layer && std::find(layers.begin(), layers.end(), *layer) != layers.end();
  }

  const LoraConfig& lora_;
  Selection targets_, excluded_;
  std::vector<std::unique_ptr<RE2>> kept_out_;
};

// The modules that others lie in: "model", "model.layers.3.mlp", ...
std::set<std::string> Containers(const std::vector<Module>& modules) {
  std::set<std::string> containers;
  for (const Module& module : modules) {
    for (size_t dot = module.path.find('.'); dot != std::string::npos;
         dot = module.path.find('.', dot + 1)) {
      containers.insert(module.path.substr(0, dot));
    }
  }
  return containers;
}

// The last parts of the paths that could be named, each once.
std::string NamesOf(const std::vector<Module>& modules, bool norms) {
  std::vector<std::string> names;
  for (const Module& module : modules) {
    if (module.kind == Module::Kind::kNorm && !norms) continue;
    std::string name = module.path;
    if (const std::optional<InnerPath> inner = InnerPathOf(name)) name = inner->path;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return absl::StrJoin(names, ", ");
}

absl::Status CheckRank(const char* field, int64_t rank) {
  if (rank >= 1 && rank <= kMaxRank) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("lora.", field, ": ", rank, " is not in [1, ", kMaxRank, "]"));
}

absl::Status CheckLayers(const LoraConfig& lora, const std::vector<Module>& modules) {
  if (lora.layers_to_transform.empty()) return absl::OkStatus();
  if (IsRegex(lora.target_modules) || Contains(lora.target_modules, kAllLinear)) {
    return absl::InvalidArgumentError(
        "lora.layers_to_transform: PEFT takes it beside a list of names in target_modules alone");
  }
  for (const int64_t layer : lora.layers_to_transform) {
    if (std::any_of(modules.begin(), modules.end(),
                    [&](const Module& m) { return LayerOf(m.path) == layer; }))
      continue;
    return absl::InvalidArgumentError(
        absl::StrCat("lora.layers_to_transform: the model has no layer ", layer));
  }
  return absl::OkStatus();
}

// PEFT names the two heads that classifiers have, "classifier" and "score", whichever the model has
// (PeftModelForSequenceClassification).
bool IsOtherClassifier(const std::string& name, const std::vector<Module>& modules) {
  const std::vector<std::string> heads = {"classifier", "score"};
  return Contains(heads, name) && std::any_of(modules.begin(), modules.end(), [&](const Module& m) {
           return m.kind == Module::Kind::kHead && Contains(heads, m.path);
         });
}

// Every name is that of a module.
absl::Status CheckNames(const LoraConfig& lora, const std::vector<Module>& modules) {
  for (const std::string& name : lora.modules_to_save) {
    if (IsOtherClassifier(name, modules)) continue;
    if (!name.empty() && std::any_of(modules.begin(), modules.end(), [&name](const Module& module) {
          return absl::EndsWith(module.path, name);
        }))
      continue;
    return absl::InvalidArgumentError(absl::StrCat("lora.modules_to_save: no module '", name,
                                                   "'; this model has ", NamesOf(modules, true)));
  }
  if (IsRegex(lora.target_modules)) return absl::OkStatus();
  for (const std::string& name : lora.target_modules) {
    if (name == kAllLinear || std::any_of(modules.begin(), modules.end(), [&](const Module& m) {
          return m.kind != Module::Kind::kNorm && IsNamed(m.path, {name});
        }))
      continue;
    return absl::InvalidArgumentError(absl::StrCat("lora.target_modules: no module '", name,
                                                   "'; this model has ", NamesOf(modules, false),
                                                   " (or all-linear)"));
  }
  return absl::OkStatus();
}

// PEFT would wrap all that lies in them; here a whole matrix or an adapter is what there is.
absl::Status CheckContainers(const Rules& rules, const std::vector<Module>& modules) {
  for (const std::string& path : Containers(modules)) {
    if (rules.Saves(path)) {
      return absl::InvalidArgumentError(
          absl::StrCat("lora.modules_to_save: ", path, " holds other modules; name these"));
    }
    if (rules.Targets(path, false)) {
      return absl::InvalidArgumentError(
          absl::StrCat("lora.target_modules: names ", path, ", which takes no adapter"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<LoraTargets> Resolve(const LoraConfig& lora, const Rules& rules,
                                    const std::vector<Module>& modules) {
  ASSIGN_OR_RETURN(auto ranks, Patterns<int64_t>::Make("rank_pattern", lora.rank_pattern));
  ASSIGN_OR_RETURN(auto alphas, Patterns<double>::Make("alpha_pattern", lora.alpha_pattern));
  LoraTargets targets;
  for (const Module& module : modules) {
    const std::string& path = module.path;
    if (rules.Saves(path)) targets.saved.insert(path);
    if (!rules.Targets(path, module.kind == Module::Kind::kLinear)) continue;
    if (module.kind == Module::Kind::kNorm) {
      return absl::InvalidArgumentError(
          absl::StrCat("lora.target_modules: names ", path, ", which takes no adapter"));
    }
    if (targets.saved.contains(path)) {
      if (rules.all_linear()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("lora.modules_to_save: ", path, " would be trained whole and adapted too"));
    }
    ASSIGN_OR_RETURN(const int64_t rank, ranks.Of(path, lora.rank));
    RETURN_IF_ERROR(CheckRank("rank_pattern", rank));
    ASSIGN_OR_RETURN(const double alpha, alphas.Of(path, lora.alpha));
    const auto r = static_cast<double>(rank);
    targets.adapters[path] = {rank, alpha / (lora.rslora ? std::sqrt(r) : r), lora.dropout};
  }
  RETURN_IF_ERROR(ranks.CheckUsed());
  RETURN_IF_ERROR(alphas.CheckUsed());
  if (!targets.adapters.empty() || lora.target_modules.empty()) return targets;
  return absl::InvalidArgumentError(
      "lora.target_modules: no module is left to adapt; see exclude_modules and modules_to_save");
}

}  // namespace

bool IsRegex(const std::vector<std::string>& names) {
  static const RE2& name = *new RE2("[A-Za-z0-9_.-]*");
  return names.size() == 1 && !RE2::FullMatch(names.front(), name);
}

LoraTargets LoraTargets::InLayer(const std::string& prefix) const {
  LoraTargets here;
  for (auto it = adapters.lower_bound(prefix);
       it != adapters.end() && absl::StartsWith(it->first, prefix); ++it) {
    here.adapters[it->first.substr(prefix.size())] = it->second;
  }
  for (auto it = saved.lower_bound(prefix); it != saved.end() && absl::StartsWith(*it, prefix);
       ++it) {
    here.saved.insert(it->substr(prefix.size()));
  }
  return here;
}

absl::StatusOr<LoraTargets> ResolveTargets(const LoraConfig& lora,
                                           const std::vector<Module>& modules) {
  RETURN_IF_ERROR(CheckRank("r", lora.rank));
  ASSIGN_OR_RETURN(const Rules rules, Rules::Make(lora));
  RETURN_IF_ERROR(CheckNames(lora, modules));
  RETURN_IF_ERROR(CheckLayers(lora, modules));
  RETURN_IF_ERROR(CheckContainers(rules, modules));
  return Resolve(lora, rules, modules);
}

}  // namespace snug::program
