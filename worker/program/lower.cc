// Assembly: blocks are scripted and laid out once per kind (memo), last to first, then strung
// together into one tape.
#include "worker/program/lower.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/block_layout.h"
#include "worker/program/block_script.h"

namespace snug::program {
namespace {

class Assembler {
 public:
  Assembler(const Program& program, const Plan& plan, const LowerOptions& options)
      : program_(program), plan_(plan), options_(options) {}

  absl::StatusOr<Tape> Assemble() {
    RETURN_IF_ERROR(LayOutBlocks());
    MeasureArena();
    tape_.key = options_.key;
    tape_.training = options_.training;
    const int blocks = static_cast<int>(program_.blocks.size());
    slots_.resize(program_.blocks.size());
    for (int b = 0; b < blocks; ++b) AppendForward(b);
    if (options_.training) {
      for (int b = blocks - 1; b >= 0; --b) AppendBackward(b);
    }
    return std::move(tape_);
  }

 private:
  // block type, recipe, dx wanted, next block's input kept, its offset
  using MemoKey = std::tuple<int, int, bool, bool, int64_t>;

  absl::Status LayOutBlocks() {
    const std::vector<bool> wanted = OutputGradientWanted(program_);
    layouts_.resize(program_.blocks.size());
    NextBlock next;
    for (size_t b = program_.blocks.size(); b-- > 0;) {
      const bool d_input = b > 0 && wanted[b - 1];
      const int layer = program_.blocks[b].layer;
      const int recipe = layer < 0 ? -1 : plan_.layer_recipe[static_cast<size_t>(layer)];
      const MemoKey key(program_.blocks[b].type, recipe, d_input, next.input_kept,
                        next.input_offset);
      std::unique_ptr<BlockLayout>& layout = memo_[key];
      if (layout == nullptr) {
        ASSIGN_OR_RETURN(BlockLayout made, LayOutBlock(static_cast<int>(b), d_input, next));
        layout = std::make_unique<BlockLayout>(std::move(made));
      }
      layouts_[b] = layout.get();
      next = {layout->input_kept, layout->input_offset};
    }
    return absl::OkStatus();
  }

  absl::StatusOr<BlockLayout> LayOutBlock(int block, bool d_input, NextBlock next) const {
    const BlockType& type = program_.type_of(block);
    const int layer = program_.blocks[static_cast<size_t>(block)].layer;
    const Recipe keep(type.values.size(), Stash::kKeep);
    const Recipe* recipe = &keep;
    if (layer >= 0) {
      const int index = plan_.layer_recipe[static_cast<size_t>(layer)];
      recipe = &plan_.recipes[static_cast<size_t>(index)];
      if (recipe->size() != type.values.size())
        return absl::InvalidArgumentError(
            absl::StrCat("plan ", plan_.name, ": recipe ", index, " has ", recipe->size(),
                         " stashes, block type ", type.name, " has ", type.values.size()));
    }
    const BlockRequest request{.program = &program_,
                               .block = block,
                               .recipe = recipe,
                               .d_input_wanted = d_input,
                               .options = &options_};
    return LayOut(ScriptOf(request), type, next);
  }

  void MeasureArena() {
    int64_t base = 0;
    for (const BlockLayout* layout : layouts_) {
      bases_.push_back(base);
      tape_.arena_bytes = std::max(tape_.arena_bytes, base + layout->peak_bytes);
      base += layout->frame_bytes;
    }
  }

  int64_t OffsetOf(int block, const LocalSlot& slot) const {
    const size_t b = static_cast<size_t>(block);
    switch (slot.place) {
      case Place::kFrame:
        return bases_[b] + slot.offset;
      case Place::kNextFrame:
        return bases_[b + 1] + layouts_[b + 1]->input_offset;
      case Place::kCarry:
      case Place::kScratch:
      case Place::kWorkspace:
        break;
    }
    return tape_.arena_bytes - slot.offset;
  }

  static Region RegionOf(Place place) {
    switch (place) {
      case Place::kFrame:
      case Place::kNextFrame:
        return Region::kStash;
      case Place::kCarry:
        return Region::kCarry;
      case Place::kWorkspace:
        return Region::kWorkspace;
      case Place::kScratch:
        break;
    }
    return Region::kScratch;
  }

  // The tape's slot for a block's local one, made at its first mention. Border slots are the
  // neighbour's.
  int32_t SlotOf(int block, int32_t local) {
    std::vector<int32_t>& mapped = slots_[static_cast<size_t>(block)];
    int32_t& slot = mapped[static_cast<size_t>(local)];
    if (slot == kNoSlot) {
      const LocalSlot& from =
          layouts_[static_cast<size_t>(block)]->slots[static_cast<size_t>(local)];
      slot = static_cast<int32_t>(tape_.slots.size());
      const int32_t now = static_cast<int32_t>(tape_.instructions.size());
      tape_.slots.push_back({OffsetOf(block, from), from.bytes, now, now, RegionOf(from.place)});
    }
    return slot;
  }

  template <typename Array>
  void MapOperands(int block, Array& operands) {
    for (int32_t& operand : operands) {
      if (operand == kNoSlot) continue;
      operand = SlotOf(block, operand);
      tape_.slots[static_cast<size_t>(operand)].last =
          static_cast<int32_t>(tape_.instructions.size());
    }
  }

  void AppendLines(int block, int32_t from, int32_t to) {
    const BlockLayout& layout = *layouts_[static_cast<size_t>(block)];
    for (int32_t t = from; t < to; ++t) {
      Instruction line = layout.lines[static_cast<size_t>(t)];
      line.block = block;
      MapOperands(block, line.operands.in);
      MapOperands(block, line.operands.out);
      MapOperands(block, line.operands.d_out);
      MapOperands(block, line.operands.d_in);
      if (line.workspace != kNoSlot) line.workspace = SlotOf(block, line.workspace);
      tape_.instructions.push_back(line);
    }
  }

  void AppendForward(int block) {
    const BlockLayout& layout = *layouts_[static_cast<size_t>(block)];
    std::vector<int32_t>& mapped = slots_[static_cast<size_t>(block)];
    mapped.assign(layout.slots.size(), kNoSlot);
    if (layout.input != kNoSlot) mapped[static_cast<size_t>(layout.input)] = border_;
    AppendLines(block, 0, layout.forward_lines);
    border_ = layout.output == kNoSlot ? kNoSlot : mapped[static_cast<size_t>(layout.output)];
  }

  void AppendBackward(int block) {
    const BlockLayout& layout = *layouts_[static_cast<size_t>(block)];
    std::vector<int32_t>& mapped = slots_[static_cast<size_t>(block)];
    if (layout.d_output != kNoSlot) mapped[static_cast<size_t>(layout.d_output)] = border_;
    AppendLines(block, layout.forward_lines, static_cast<int32_t>(layout.lines.size()));
    border_ = layout.d_input == kNoSlot ? kNoSlot : mapped[static_cast<size_t>(layout.d_input)];
  }

  const Program& program_;
  const Plan& plan_;
  const LowerOptions& options_;
  std::map<MemoKey, std::unique_ptr<BlockLayout>> memo_;
  std::vector<const BlockLayout*> layouts_;  // By block.
  std::vector<int64_t> bases_;               // By block: where its frame begins.
  std::vector<std::vector<int32_t>> slots_;  // By block, by local slot: the tape's.
  int32_t border_ = kNoSlot;                 // What the next block is handed.
  Tape tape_;
};

absl::Status CheckArguments(const Program& program, const Plan& plan, const LowerOptions& options) {
  if (static_cast<int64_t>(plan.layer_recipe.size()) != program.config.layers)
    return absl::InvalidArgumentError(
        absl::StrCat("plan ", plan.name, " is for ", plan.layer_recipe.size(),
                     " layers, the model has ", program.config.layers));
  for (int recipe : plan.layer_recipe) {
    if (recipe < 0 || recipe >= static_cast<int>(plan.recipes.size()))
      return absl::InvalidArgumentError(
          absl::StrCat("plan ", plan.name, " names recipe ", recipe, " of ", plan.recipes.size()));
  }
  const TapeKey& key = options.key;
  if (key.tokens < 1 || key.documents < 1 || key.longest_document < 1)
    return absl::InvalidArgumentError("a tape's key needs a token, a document and its length");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Tape> Lower(const Program& program, const Plan& plan, const LowerOptions& options) {
  RETURN_IF_ERROR(CheckArguments(program, plan, options));
  return Assembler(program, plan, options).Assemble();
}

}  // namespace snug::program
