#include "worker/program/plan_memo.h"

#include <list>
#include <mutex>
#include <type_traits>
#include <utility>

#include "proto/snug/status_macros.h"

namespace snug::program {
namespace {

// The facts' arguments, written one behind another: equal texts, equal facts.
class Fingerprint {
 public:
  template <typename... Numbers>
  void Add(Numbers... numbers) {
    (AddOne(numbers), ...);
  }
  // All of it, whatever coordinates a key gets.
  void AddKey(const TapeKey& key) {
    static_assert(std::has_unique_object_representations_v<TapeKey>);
    text_.append(reinterpret_cast<const char*>(&key), sizeof(key));
  }
  void AddList(const std::vector<int>& list) {
    Add(list.size());
    for (int number : list) Add(number);
  }
  std::string Take() { return std::move(text_); }

 private:
  template <typename Number>
  void AddOne(Number number) {
    static_assert(std::is_arithmetic_v<Number> || std::is_enum_v<Number>);
    text_.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }

  std::string text_;
};

void AddAttributes(const OpAttributes& attributes, Fingerprint& text) {
  // As many names as there are fields: a new one does not compile until it is here.
  const auto& [heads, kv_heads, head_width, rotary_width, epsilon, scale, table_scale, dropout,
               patch_width, za_column, rank, smoothing, softcap, window, offset, bias, centred,
               causal, distances, order, order_before, whole_documents, query_rows, key_rows, ids,
               row, rows, local, selected, loss, activation, quantization, code_bits,
               with_replacement] = attributes;
  text.Add(heads, kv_heads, head_width, rotary_width, epsilon, scale, table_scale, dropout,
           patch_width, za_column, rank, smoothing, softcap, window, offset, bias, centred, causal,
           distances.buckets, distances.farthest, whole_documents, query_rows, key_rows, ids, row,
           rows, local, selected, loss, activation, quantization, code_bits, with_replacement);
  for (const PatchOrder& each : {order, order_before})
    text.Add(each.side, each.window, each.shift, each.in_fours);
}

void AddType(const BlockType& type, Fingerprint& text) {
  text.AddList(type.inputs);
  text.AddList(type.outputs);
  text.Add(type.parameter_slots, type.values.size(), type.ops.size());
  for (const Value& value : type.values)
    text.Add(value.width, value.dtype, value.companion, value.rows);
  for (const Op& op : type.ops) {
    text.Add(op.code);
    text.AddList(op.inputs);
    text.AddList(op.outputs);
    text.AddList(op.parameters);
    AddAttributes(op.attributes, text);
  }
}

std::string FingerprintOf(const Program& program, const LowerOptions& options) {
  Fingerprint text;
  text.AddKey(options.key);
  text.Add(options.machine.threads, options.machine.cpu, options.machine.rates.flops_per_s,
           options.machine.rates.bytes_per_s, program.compute, program.config.vocabulary,
           program.types.size());
  for (const BlockType& type : program.types) AddType(type, text);
  for (const Block& block : program.blocks) {
    text.Add(block.type, block.layer >= 0);
    for (int index : block.parameters)
      text.Add(program.parameters[static_cast<size_t>(index)].trainable);
  }
  return text.Take();
}

struct Entry {
  std::string fingerprint;
  std::shared_ptr<const PlanFacts> facts;
};

struct Memo {
  std::mutex mutex;
  std::list<Entry> entries;  // The last asked for first.

  std::shared_ptr<const PlanFacts> Find(const std::string& fingerprint) {
    const std::lock_guard lock(mutex);
    for (auto it = entries.begin(); it != entries.end(); ++it) {
      if (it->fingerprint != fingerprint) continue;
      entries.splice(entries.begin(), entries, it);
      return it->facts;
    }
    return nullptr;
  }

  void Add(Entry entry) {
    const std::lock_guard lock(mutex);
    entries.push_front(std::move(entry));
    if (entries.size() > kMostPlanFacts) entries.pop_back();
  }
};

Memo& TheMemo() {
  static Memo* memo = new Memo;  // Never destroyed: threads may plan while the process ends.
  return *memo;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const PlanFacts>> PlanFactsOf(const Program& program,
                                                             const LowerOptions& options) {
  std::string fingerprint = FingerprintOf(program, options);
  if (std::shared_ptr<const PlanFacts> known = TheMemo().Find(fingerprint)) return known;
  auto facts = std::make_shared<PlanFacts>();
  ASSIGN_OR_RETURN(facts->space, PlanSpace::Make(program, options));
  facts->frontier = FrontierOf(facts->space);
  TheMemo().Add({std::move(fingerprint), facts});
  return std::shared_ptr<const PlanFacts>(std::move(facts));
}

}  // namespace snug::program
