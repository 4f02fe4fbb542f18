#include "worker/program/generation.h"

#include <utility>

#include "proto/snug/status_macros.h"
#include "worker/program/planning/block_cost.h"

namespace snug::program {
namespace {

// Bytes per token of the keys of such rows that a block's tokens see, as of their values; 0: it has
// no such attention.
int64_t KeyRowBytes(const BlockType& type, Rows rows) {
  for (const Op& op : type.ops) {
    const bool seen = op.attributes.query_rows == Rows::kTokens && op.attributes.key_rows == rows;
    if (op.code != OpCode::kAttention || !seen) continue;
    const Value& keys = type.values[static_cast<size_t>(op.inputs[1])];
    return keys.width * SizeOf(keys.dtype);
  }
  return 0;
}

// Gives everything behind the tape its place, and the whole its size.
void PlaceBehindTape(const Program& program, const TapeKey& key, int64_t tape_bytes,
                     GenerationLayout& layout) {
  constexpr int64_t kF32 = 4, kI32 = 4, kI64 = 8;
  int64_t at = Aligned(tape_bytes);
  const auto take = [&at](int64_t bytes) { return std::exchange(at, at + Aligned(bytes)); };
  const auto place = [&](Rows rows, CacheLayout& cache) {
    cache.rows = key.LongestOf(rows);
    for (size_t block = 0; block < program.blocks.size(); ++block) {
      const int64_t row = KeyRowBytes(program.type_of(static_cast<int>(block)), rows);
      cache.keys.push_back(row == 0 ? -1 : take(row * cache.rows));
      cache.values.push_back(row == 0 ? -1 : take(row * cache.rows));
    }
  };
  place(Rows::kTokens, layout.own);
  place(Rows::kSource, layout.sources);
  layout.spans = take(4 * kI64);
  layout.logits = take(program.config.vocabulary * kF32);
  layout.order = take(program.config.vocabulary * kI32);
  layout.bytes = at;
}

}  // namespace

TapeKey GenerationKey(const ModelConfig& config, int64_t prompt_tokens, int64_t new_tokens) {
  if (config.has_source())
    return {.tokens = 1,
            .documents = 1,
            .longest_document = new_tokens,
            .source_tokens = prompt_tokens,
            .longest_source = prompt_tokens};
  return {.tokens = prompt_tokens, .documents = 1, .longest_document = prompt_tokens + new_tokens};
}

absl::StatusOr<GenerationLayout> LayOutGeneration(const Program& program, const Plan& plan,
                                                  LowerOptions options) {
  options.training = false;
  GenerationLayout layout;
  ASSIGN_OR_RETURN(layout.tape, Lower(program, plan, options));
  PlaceBehindTape(program, options.key, layout.tape.arena_bytes, layout);
  return layout;
}

int64_t GenerationBytes(const Program& program, const TapeKey& key, int64_t tape_bytes) {
  GenerationLayout layout;
  PlaceBehindTape(program, key, tape_bytes, layout);
  return layout.bytes;
}

Program Frozen(Program program) {
  for (Parameter& parameter : program.parameters) parameter.trainable = parameter.released = false;
  program.optimizer_on_host = false;
  return program;
}

absl::StatusOr<Components> AnsweringBytes(const Program& frozen, const LowerOptions& options,
                                          int64_t context_bytes) {
  Components bytes = StaticComponents(frozen, options.key, options.machine, context_bytes);
  bytes.optimizer = 0;  // Nobody adds up the norm of gradients.
  ASSIGN_OR_RETURN(const int64_t tape_bytes, ForwardArenaBytes(frozen, options));
  bytes.arena =
      ArenaBytes(bytes, GenerationBytes(frozen, options.key, tape_bytes), options.machine);
  return bytes;
}

}  // namespace snug::program
