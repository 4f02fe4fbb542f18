#include "worker/program/planning/recipes.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>

#include "worker/program/op_table.h"
#include "worker/program/replay.h"

namespace snug::program {
namespace {

// What the ops of a block may leave out one after another must not add up.
constexpr double kMostLeaps = 16.0;

// Sets of values and of ops are words. A block with more of either is kept or run again as a whole.
constexpr size_t kMostValues = 64;
using Set = uint64_t;
constexpr Set Only(int i) { return Set{1} << i; }
constexpr Set Below(int i) { return Only(i) - 1; }

// A way, decided for the values of the last ops.
struct Way {
  Set needed = 0;  // Values that backward reads, or an op that is run again.
  Set kept = 0;
  Set rerun = 0;  // Ops.
  int64_t frame_bytes = 0;
  double seconds = 0.0;  // Of what is run again.
};

class RecipeSearch {
 public:
  RecipeSearch(const RecipeQuery& block, const RecipeLimits& limits)
      : block_(block), limits_(limits), type_(*block.type) {
    producer_.assign(type_.values.size(), -1);
    for (size_t i = 0; i < type_.ops.size(); ++i) {
      for (int value : type_.ops[i].outputs) producer_[static_cast<size_t>(value)] = Index(i);
      seconds_.push_back(ForwardSeconds(type_.ops[i]));
      gain_ += limits.least_gain * seconds_.back();
    }
  }

  std::vector<Way> Search() {
    Way start;
    for (size_t v = 0; v < block_.read.size(); ++v) {
      if (block_.read[v]) start.needed |= Only(Index(v));
    }
    ways_ = {start};
    for (int op = Index(type_.ops.size()) - 1; op >= 0; --op) {
      DecideOutputs(op);
      LeaveBest(op, gain_ / kMostLeaps);
    }
    for (int input : type_.inputs) {
      for (Way& way : ways_) {
        if (way.needed & Only(input)) Keep(way, input);
      }
    }
    for (Way& way : ways_) way.needed = 0;  // All decided: all the same.
    LeaveBest(0, gain_);
    return std::move(ways_);
  }

  Recipe RecipeOf(const Way& way) const {
    Recipe recipe(type_.values.size(), Stash::kKeep);
    for (size_t v = 0; v < recipe.size(); ++v) {
      const bool again = producer_[v] >= 0 && (way.rerun & Only(producer_[v])) != 0;
      if (again && (way.kept & Only(Index(v))) == 0) recipe[v] = Stash::kRecompute;
    }
    return recipe;
  }

 private:
  static int Index(size_t i) { return static_cast<int>(i); }
  const Value& ValueOf(int v) const { return type_.values[static_cast<size_t>(v)]; }
  int ProducerOf(int v) const { return producer_[static_cast<size_t>(v)]; }

  void Keep(Way& way, int value) const {
    way.kept |= Only(value);
    way.frame_bytes += Aligned(ShapeOf(value).bytes(block_.key));
  }

  Operand ShapeOf(int value) const {
    const Value& v = ValueOf(value);
    return {.width = static_cast<int32_t>(v.width), .rows = v.rows, .dtype = v.dtype};
  }

  double ForwardSeconds(const Op& op) const {
    RunShape run{
        .op = &op, .key = block_.key, .compute = block_.compute, .vocabulary = block_.vocabulary};
    for (size_t i = 0; i < op.inputs.size(); ++i) run.in[i] = ShapeOf(op.inputs[i]);
    for (size_t i = 0; i < op.outputs.size(); ++i) run.out[i] = ShapeOf(op.outputs[i]);
    return SecondsOf(WorkOf(run), block_.machine);
  }

  // Every way splits at each of the op's results that is needed: kept, or made again.
  void DecideOutputs(int index) {
    const Op& op = type_.ops[static_cast<size_t>(index)];
    for (int value : op.outputs) {
      if (ValueOf(value).companion) continue;
      const size_t before = ways_.size();
      for (size_t w = 0; w < before; ++w) {
        if ((ways_[w].needed & Only(value)) == 0) continue;
        Way again = ways_[w];
        again.rerun |= Only(index);
        ways_.push_back(again);
        Keep(ways_[w], value);
      }
    }
    for (Way& way : ways_) {
      if (way.rerun & Only(index)) {
        RunAgain(way, op, seconds_[static_cast<size_t>(index)]);
      } else {
        KeepCompanions(way, op);
      }
    }
  }

  // A companion among the inputs is made again with the op that reads it.
  void RunAgain(Way& way, const Op& op, double seconds) const {
    way.seconds += seconds;
    for (int input : op.inputs) {
      if (ValueOf(input).companion)
        way.rerun |= Only(ProducerOf(input));
      else
        way.needed |= Only(input);
    }
  }

  void KeepCompanions(Way& way, const Op& op) const {
    for (int value : op.outputs) {
      if (ValueOf(value).companion && (way.needed & Only(value)) != 0) Keep(way, value);
    }
  }

  // What ops before `op` have still to decide.
  std::pair<Set, Set> OpenOf(const Way& way, int op) const {
    Set open = 0;
    for (int input : type_.inputs) open |= Only(input);
    for (int i = 0; i < op; ++i) {
      for (int value : type_.ops[static_cast<size_t>(i)].outputs) open |= Only(value);
    }
    return {way.needed & open, way.rerun & Below(op)};
  }

  // Of ways that leave the same open, those that too few others beat to be left out.
  void LeaveBest(int op, double least_gain) {
    using Key = std::tuple<std::pair<Set, Set>, int64_t, double>;
    std::vector<std::pair<Key, Way>> sorted;
    for (const Way& way : ways_)
      sorted.push_back({{OpenOf(way, op), way.frame_bytes, way.seconds}, way});
    std::sort(sorted.begin(), sorted.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    ways_.clear();
    std::vector<double> fastest;  // Of those left with the same open: the least times.
    for (size_t i = 0; i < sorted.size(); ++i) {
      const Way& way = sorted[i].second;
      if (i == 0 || std::get<0>(sorted[i].first) != std::get<0>(sorted[i - 1].first))
        fastest.assign(static_cast<size_t>(limits_.rivals), 1e300);
      if (way.seconds > fastest.back() - least_gain) continue;
      fastest.back() = way.seconds;
      std::sort(fastest.begin(), fastest.end());
      ways_.push_back(way);
    }
  }

  const RecipeQuery& block_;
  const RecipeLimits limits_;
  const BlockType& type_;
  std::vector<int> producer_;    // By value.
  std::vector<double> seconds_;  // By op, forward.
  double gain_ = 0.0;            // RecipeLimits::least_gain, in seconds.
  std::vector<Way> ways_;
};

}  // namespace

std::vector<Recipe> CandidateRecipes(const RecipeQuery& block, const RecipeLimits& limits) {
  const BlockType& type = *block.type;
  std::vector<Recipe> recipes = {Recipe(type.values.size(), Stash::kKeep), RecomputeRecipe(type)};
  if (type.values.size() > kMostValues || type.ops.size() > kMostValues) return recipes;
  RecipeSearch search(block, limits);
  std::vector<Way> ways = search.Search();
  std::stable_sort(ways.begin(), ways.end(),
                   [](const Way& a, const Way& b) { return a.frame_bytes > b.frame_bytes; });
  for (const Way& way : ways) recipes.push_back(search.RecipeOf(way));
  return recipes;
}

namespace {

// Forms by which a recipe is changed: what one cannot serve is left to those behind it.
using Forms = std::vector<Stash>;

// None; of forms that an op turns back into the value one at most, of those that backwards take
// themselves, which serve few values, any.
std::vector<Forms> MixturesOf(const FormsAllowed& allowed) {
  std::vector<Forms> mixtures = {{}};
  for (const bool taken : {true, false}) {
    const size_t before = mixtures.size();
    for (Stash stash : kAllStashes) {
      const StashRow& row = RowOf(stash);
      const bool form = row.has_form && row.taken == taken && row.region != Region::kHost;
      if (!form || !allowed.Allows(stash)) continue;
      const size_t others = taken ? mixtures.size() : before;
      for (size_t i = 0; i < others; ++i) {
        mixtures.push_back(mixtures[i]);
        mixtures.back().push_back(stash);
      }
    }
  }
  return mixtures;
}

// Which stashes can keep a value, by value.
class Serving {
 public:
  explicit Serving(const std::vector<uint32_t>& bits) : bits_(bits) {}
  bool By(Stash stash, size_t value) const {
    return (bits_[value] >> static_cast<int>(stash) & 1) != 0;
  }

 private:
  const std::vector<uint32_t>& bits_;
};

// Of what a block gives nothing is changed: that is the next one's to hold.
Recipe WithForms(const BlockType& type, Recipe recipe, const Serving& serving, const Forms& forms,
                 bool chunk) {
  for (size_t v = 0; v < recipe.size(); ++v) {
    if (std::count(type.outputs.begin(), type.outputs.end(), static_cast<int>(v)) > 0) continue;
    const auto form =
        std::find_if(forms.begin(), forms.end(), [&](Stash stash) { return serving.By(stash, v); });
    if (chunk && serving.By(Stash::kChunk, v)) {
      recipe[v] = Stash::kChunk;
    } else if (recipe[v] == Stash::kKeep && form != forms.end()) {
      recipe[v] = *form;
    }
  }
  return recipe;
}

}  // namespace

std::vector<Recipe> FormRecipes(const BlockType& type, const std::vector<Recipe>& recipes,
                                const std::vector<uint32_t>& serving, const FormsAllowed& allowed) {
  std::set<Recipe> known(recipes.begin(), recipes.end());
  std::vector<Recipe> found;
  for (const Forms& forms : MixturesOf(allowed)) {
    for (const bool chunk : {false, true}) {
      for (const Recipe& recipe : recipes) {
        Recipe changed = WithForms(type, recipe, Serving(serving), forms, chunk);
        if (known.insert(changed).second) found.push_back(std::move(changed));
      }
    }
  }
  return found;
}

}  // namespace snug::program
