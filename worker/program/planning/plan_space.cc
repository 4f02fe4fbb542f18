#include "worker/program/planning/plan_space.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "proto/snug/status_macros.h"

namespace snug::program {
namespace {

// Leaves out what another choice beats in frame, peak and time, but for the first two. One whose
// peak is hardly lower, or that hardly saves time, counts as beaten.
void LeaveUnbeaten(std::vector<Choice>& choices, const RecipeLimits& limits) {
  // By rising frame, behind the two that always stay: then what beats a choice stands before it.
  std::stable_sort(choices.begin() + kRecomputeAll + 1, choices.end(),
                   [](const Choice& a, const Choice& b) {
                     return std::pair(a.price.frame_bytes, a.price.peak_bytes()) <
                            std::pair(b.price.frame_bytes, b.price.peak_bytes());
                   });
  const double gain = limits.least_gain * choices[kKeepAll].price.seconds;
  const int64_t lower =
      static_cast<int64_t>(limits.least_drop * choices[kKeepAll].price.peak_bytes());
  std::vector<Choice> left;
  for (size_t i = 0; i < choices.size(); ++i) {
    const auto beats = [&](const Choice& other) {
      return other.price.frame_bytes <= choices[i].price.frame_bytes &&
             other.price.peak_bytes() <= choices[i].price.peak_bytes() + lower &&
             other.price.seconds <= choices[i].price.seconds + gain;
    };
    const bool beaten = std::any_of(left.begin(), left.end(), beats);
    if (i <= kRecomputeAll || !beaten) left.push_back(std::move(choices[i]));
  }
  choices = std::move(left);
}

}  // namespace

class PlanSpaceBuilder {
 public:
  PlanSpaceBuilder(const Program& program, const LowerOptions& options, const FormsAllowed& allowed,
                   const RecipeLimits& limits)
      : program_(program),
        options_(options),
        allowed_(allowed),
        limits_(limits),
        sites_(SitesOf(program)) {}

  absl::StatusOr<PlanSpace> Build() {
    RETURN_IF_ERROR(AddKinds());
    NumberHandovers();
    for (size_t k = 0; k < space_.kinds_.size(); ++k) RETURN_IF_ERROR(PriceBefore(k));
    return std::move(space_);
  }

 private:
  bool AnyTrainable(const Block& block) const {
    return std::any_of(block.parameters.begin(), block.parameters.end(), [&](int index) {
      return program_.parameters[static_cast<size_t>(index)].trainable;
    });
  }

  absl::Status AddKinds() {
    std::map<std::pair<int, bool>, size_t> index;
    bool trained = false;  // Something before the block.
    for (size_t b = 0; b < program_.blocks.size(); ++b) {
      const Block& block = program_.blocks[b];
      const auto [it, is_new] = index.try_emplace({block.type, trained}, space_.kinds_.size());
      space_.kind_of_.push_back(it->second);
      if (is_new) {
        BlockKind& kind = space_.kinds_.emplace_back();
        kind.block = static_cast<int>(b);
        kind.d_input_wanted = trained;
        kind.decided = block.layer >= 0;
      }
      trained = trained || AnyTrainable(block);
    }
    return AddAllChoices();
  }

  // Of kinds that are alike but for what lies before them, as a first layer and the others, recipes
  // are looked for once: for that of the last, which the most blocks have.
  absl::Status AddAllChoices() {
    std::map<int, const BlockKind*> searched;  // By block type.
    for (size_t k = space_.kinds_.size(); k-- > 0;) {
      BlockKind& kind = space_.kinds_[k];
      const BlockKind*& like = searched[program_.blocks[static_cast<size_t>(kind.block)].type];
      if (like == nullptr) {
        RETURN_IF_ERROR(AddChoices(kind));
        like = &kind;
      } else {
        RETURN_IF_ERROR(AddPriced(kind, PricerOf(kind, std::nullopt), RecipesOf(*like)));
        if (kind.decided) LeaveUnbeaten(kind.choices, limits_);
      }
    }
    return absl::OkStatus();
  }

  static std::vector<Recipe> RecipesOf(const BlockKind& kind) {
    std::vector<Recipe> recipes;
    for (const Choice& choice : kind.choices) recipes.push_back(choice.recipe);
    return recipes;
  }

  BlockPricer PricerOf(const BlockKind& kind, std::optional<int> behind) const {
    return {program_, {kind.block, kind.d_input_wanted, behind}, options_};
  }

  absl::Status AddChoices(BlockKind& kind) const {
    const BlockPricer pricer = PricerOf(kind, std::nullopt);
    const BlockType& type = program_.type_of(kind.block);
    if (!kind.decided) return AddPriced(kind, pricer, {Recipe(type.values.size(), Stash::kKeep)});
    ASSIGN_OR_RETURN(const BlockPricer::Uses uses, pricer.UsesOfValues());
    const RecipeQuery query{.type = &type,
                            .read = uses.read,
                            .key = options_.key,
                            .compute = program_.compute,
                            .vocabulary = program_.config.vocabulary,
                            .machine = options_.machine};
    RETURN_IF_ERROR(AddPriced(kind, pricer, CandidateRecipes(query, limits_)));
    LeaveUnbeaten(kind.choices, limits_);
    RETURN_IF_ERROR(
        AddPriced(kind, pricer, FormRecipes(type, RecipesOf(kind), uses.serving, allowed_)));
    LeaveUnbeaten(kind.choices, limits_);
    return absl::OkStatus();
  }

  absl::Status AddPriced(BlockKind& kind, const BlockPricer& pricer,
                         std::vector<Recipe> recipes) const {
    for (Recipe& recipe : recipes) {
      Choice& choice = kind.choices.emplace_back();
      ASSIGN_OR_RETURN(choice.price, pricer.Price(recipe, {}));
      if (kind.decided) choice.site_bytes = SiteBytes(program_, sites_, kind.block, recipe);
      choice.recipe = std::move(recipe);
    }
    return absl::OkStatus();
  }

  // A way in which a block takes its input over, and a block that does so.
  struct Example {
    Handover handover;
    int block = -1;  // The head.
    const Recipe* recipe = nullptr;
  };

  void NumberHandovers() {
    examples_ = {{.handover = space_.kinds_.front().choices.front().price.output}};
    for (BlockKind& kind : space_.kinds_) {
      for (Choice& choice : kind.choices) {
        const auto found = std::find_if(
            examples_.begin(), examples_.end(),
            [&](const Example& example) { return example.handover == choice.price.input; });
        choice.handover = static_cast<size_t>(found - examples_.begin());
        if (found == examples_.end())
          examples_.push_back({choice.price.input, kind.block, &choice.recipe});
      }
    }
  }

  // How the block behind takes its input over changes the end of a block's forward alone: at most
  // it lifts all of it by what lies below that input and the input itself, and what it takes to
  // write it. Where backward needs more even so, the price stays.
  static bool BackwardIsHigher(const BlockPrice& price, const Handover& behind) {
    const int64_t lifted = behind.offset + Aligned(behind.bytes) + Aligned(behind.workspace);
    return price.forward_bytes + lifted <= price.backward_bytes &&
           price.forward_peak.total() + lifted <= price.backward_peak.total();
  }

  // Numbers of the handovers that the kind may have behind it, but for the head's; those that are
  // alike but for their offset together, by it.
  std::map<Handover, std::map<int64_t, size_t>> HandoversBehind(size_t k) const {
    std::map<Handover, std::map<int64_t, size_t>> alike;
    for (size_t b = 0; b + 1 < space_.blocks(); ++b) {
      if (space_.kind_of_[b] != k) continue;
      for (const Choice& behind : space_.KindOf(b + 1).choices) {
        const Handover& handover = behind.price.input;
        if (behind.handover != 0) alike[handover.At(0)][handover.offset] = behind.handover;
      }
    }
    return alike;
  }

  absl::Status PriceBefore(size_t k) {
    BlockKind& kind = space_.kinds_[k];
    std::map<int, BlockPricer> pricers;  // By the block behind.
    for (Choice& choice : kind.choices) choice.price_before.assign(examples_.size(), choice.price);
    for (const auto& [shape, alike] : HandoversBehind(k)) {
      for (Choice& choice : kind.choices) {
        std::optional<BlockPrice> known;
        if (choice.price.output.At(0) == shape) known = choice.price;  // As before the head.
        for (const auto& [offset, h] : alike) {
          const Example& example = examples_[h];
          if (BackwardIsHigher(choice.price, example.handover)) continue;
          std::optional<BlockPrice> price = known ? known->WithOutputAt(offset) : std::nullopt;
          if (!price) {
            auto pricer = pricers.find(example.block);
            if (pricer == pricers.end())
              pricer = pricers.emplace(example.block, PricerOf(kind, example.block)).first;
            ASSIGN_OR_RETURN(price, pricer->second.Price(choice.recipe, *example.recipe));
            known = price;
          }
          choice.price_before[h] = *price;
        }
      }
    }
    for (const Choice& choice : kind.choices) {
      int64_t highest = 0;
      for (const BlockPrice& price : choice.price_before)
        highest = std::max(highest, price.peak_bytes());
      kind.offers.push_back({choice.price.frame_bytes, highest, choice.price.seconds});
    }
    return absl::OkStatus();
  }

  const Program& program_;
  const LowerOptions options_;
  const FormsAllowed allowed_;
  const RecipeLimits limits_;
  const std::vector<Site> sites_;
  std::vector<Example> examples_;  // By number of the handover.
  PlanSpace space_;
};

absl::StatusOr<PlanSpace> PlanSpace::Make(const Program& program, const LowerOptions& options,
                                          const FormsAllowed& allowed, const RecipeLimits& limits) {
  return PlanSpaceBuilder(program, options, allowed, limits).Build();
}

const BlockPrice& PlanSpace::PriceOf(const Mix& mix, size_t block) const {
  const Choice& choice = KindOf(block).choices[mix[block]];
  if (block + 1 == blocks()) return choice.price;
  return choice.price_before[KindOf(block + 1).choices[mix[block + 1]].handover];
}

MixPrice PlanSpace::Price(const Mix& mix) const {
  MixPrice price;
  int64_t base = 0;
  for (size_t b = 0; b < blocks(); ++b) {
    const BlockPrice& cost = PriceOf(mix, b);
    price.arena_bytes = std::max(price.arena_bytes, base + cost.peak_bytes());
    price.seconds += KindOf(b).choices[mix[b]].price.seconds;
    base += cost.frame_bytes;
  }
  return price;
}

LiveBytes PlanSpace::PeakOf(const Mix& mix) const {
  LiveBytes highest;
  const auto meet = [&highest](LiveBytes live, int64_t base) {
    live.stash += base;
    if (live.total() > highest.total()) highest = live;
  };
  int64_t base = 0;
  for (size_t b = 0; b < blocks(); ++b) {
    const BlockPrice& cost = PriceOf(mix, b);
    meet(cost.forward_peak, base);
    base += cost.stash_bytes;
  }
  for (size_t b = blocks(); b-- > 0;) {
    const BlockPrice& cost = PriceOf(mix, b);
    base -= cost.stash_bytes;
    meet(cost.backward_peak, base);
  }
  return highest;
}

std::map<Stash, double> PlanSpace::SharesOf(const Mix& mix) const {
  std::map<Stash, int64_t> sum;
  for (size_t b = 0; b < blocks(); ++b) {
    for (const auto& [stash, bytes] : KindOf(b).choices[mix[b]].site_bytes) sum[stash] += bytes;
  }
  return program::SharesOf(sum);
}

Mix PlanSpace::RecomputeMix(int recomputed_layers) const {
  Mix mix(blocks(), 0);
  for (size_t b = 0; b < blocks(); ++b) {
    if (KindOf(b).decided && recomputed_layers-- > 0) mix[b] = kRecomputeAll;
  }
  return mix;
}

std::optional<int> PlanSpace::RecomputedLayers(const Mix& mix) const {
  int layers = 0;
  for (size_t b = 0; b < blocks(); ++b) layers += KindOf(b).decided && mix[b] == kRecomputeAll;
  if (mix != RecomputeMix(layers)) return std::nullopt;
  return layers;
}

Plan PlanSpace::PlanOf(const Mix& mix) const {
  Plan plan;
  std::map<std::pair<size_t, uint16_t>, int> index;
  for (size_t b = 0; b < blocks(); ++b) {
    if (!KindOf(b).decided) continue;
    const auto [it, is_new] =
        index.try_emplace({kind_of_[b], mix[b]}, static_cast<int>(plan.recipes.size()));
    if (is_new) plan.recipes.push_back(KindOf(b).choices[mix[b]].recipe);
    plan.layer_recipe.push_back(it->second);
  }
  return plan;
}

}  // namespace snug::program
