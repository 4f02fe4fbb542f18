// Which values of a block are kept for its backward, and which ops are run again there. Everything
// follows from the needs of the op table, from what is trained, and from the recipe.
#include <cstdint>
#include <vector>

#include "worker/program/block_script.h"
#include "worker/program/gradients.h"

namespace snug::program {
namespace {

class DemandFinder {
 public:
  explicit DemandFinder(const BlockRequest& request)
      : type_(request.program->type_of(request.block)),
        recipe_(*request.recipe),
        gradients_(GradientsOf(request)),
        producer_(type_.values.size(), -1) {
    demand_.kept.resize(type_.values.size());
    demand_.touched.resize(type_.values.size());
    demand_.rerun.resize(type_.ops.size());
    for (size_t i = 0; i < type_.ops.size(); ++i) {
      for (int value : type_.ops[i].outputs) producer_[value] = static_cast<int>(i);
    }
  }

  Demand Find() {
    std::vector<int> needed = NeededByBackward();
    for (int value : needed) {
      if (!type_.values[value].companion) Need(value);
    }
    // Companions last: kept only when their op is not run again anyway.
    for (int value : needed) {
      demand_.touched[value] = true;
      if (type_.values[value].companion && !demand_.rerun[producer_[value]])
        demand_.kept[value] = true;
    }
    return demand_;
  }

 private:
  std::vector<int> NeededByBackward() const {
    std::vector<int> needed;
    for (size_t i = 0; i < type_.ops.size(); ++i) {
      const Op& op = type_.ops[i];
      if (!gradients_.backward[i]) continue;
      const uint32_t needs = RowOf(op.code).needs(gradients_.wanted[i]);
      for (size_t k = 0; k < op.inputs.size(); ++k) {
        if (needs >> k & 1) needed.push_back(op.inputs[k]);
      }
      for (size_t k = 0; k < op.outputs.size(); ++k) {
        if (needs & kNeedsOutput << k) needed.push_back(op.outputs[k]);
      }
    }
    return needed;
  }

  void Need(int value) {
    if (demand_.touched[value]) return;
    demand_.touched[value] = true;
    const bool source = producer_[value] < 0;  // The block's input: the chain stops here.
    if (source || recipe_[value] == Stash::kKeep) {
      demand_.kept[value] = true;
    } else {
      Rerun(producer_[value]);
    }
  }

  void Rerun(int op) {
    if (demand_.rerun[op]) return;
    demand_.rerun[op] = true;
    for (int input : type_.ops[op].inputs) {
      // A companion input (LoRA's za) is made again with the op that reads it.
      if (type_.values[input].companion) {
        demand_.touched[input] = true;
        Rerun(producer_[input]);
      } else {
        Need(input);
      }
    }
  }

  const BlockType& type_;
  const Recipe& recipe_;
  const BlockGradients gradients_;
  std::vector<int> producer_;
  Demand demand_;
};

}  // namespace

Demand DemandOf(const BlockRequest& request) { return DemandFinder(request).Find(); }

}  // namespace snug::program
