#include "worker/train/generator.h"

#include <array>
#include <cmath>
#include <utility>

#include "proto/snug/status_macros.h"
#include "worker/execute/host_copy.h"
#include "worker/train/sampling.h"

namespace snug::train {
namespace {

// Gemma 2's; 0: none.
void Softcap(double cap, std::span<float> logits) {
  if (cap == 0.0) return;
  const auto softcap = static_cast<float>(cap);
  for (float& x : logits) x = softcap * std::tanh(x / softcap);
}

}  // namespace

Generator::Generator(const program::Program& program, const program::GenerationLayout& layout,
                     execute::Executor& executor, execute::ArenaMemory& arena,
                     BatchBuffers& buffers)
    : layout_(layout),
      softcap_(program.config.logit_softcap),
      executor_(executor),
      arena_(arena),
      buffers_(buffers),
      reads_source_(program.config.has_source()),
      start_token_(static_cast<int32_t>(program.config.start_token)),
      own_(CacheAt(layout.own)),
      sources_(CacheAt(layout.sources)) {
  const auto vocabulary = static_cast<size_t>(program.config.vocabulary);
  if (!arena.device().host_reads_memory()) {
    copied_.resize(vocabulary);
    sorted_.resize(vocabulary);
    logits_ = copied_;
    order_ = sorted_;
    return;
  }
  logits_ = {reinterpret_cast<float*>(arena.data() + layout.logits), vocabulary};
  order_ = {reinterpret_cast<int32_t*>(arena.data() + layout.order), vocabulary};
}

Generator::Cache Generator::CacheAt(const program::CacheLayout& layout) const {
  const auto at = [&](int64_t offset) -> void* {
    return offset < 0 ? nullptr : arena_.data() + offset;
  };
  Cache cache = {.keys = {}, .values = {}, .capacity = layout.rows};
  for (const int64_t offset : layout.keys) cache.keys.push_back(at(offset));
  for (const int64_t offset : layout.values) cache.values.push_back(at(offset));
  return cache;
}

absl::Status Generator::Run(std::span<const int32_t> ids, std::span<const int32_t> source,
                            const Past& past) {
  ASSIGN_OR_RETURN(execute::Batch batch, buffers_.FillTokens(ids, source, past.tokens));
  execute::KvCache own = own_.With(&past.tokens), sources = sources_.With(&past.source);
  RETURN_IF_ERROR(UploadSpans(batch, own, sources));
  batch.kv_cache = &own;
  batch.source_cache = &sources;
  batch.next_logits = reinterpret_cast<float*>(arena_.data() + layout_.logits);
  RETURN_IF_ERROR(executor_.Run(layout_.tape, arena_, batch, {.dropout = false}).status());
  if (copied_.empty()) return absl::OkStatus();
  return execute::CopyMemory(arena_.device(), batch.next_logits,
                             static_cast<int64_t>(logits_.size_bytes()), copied_.data());
}

absl::Status Generator::UploadSpans(const execute::Batch& batch, execute::KvCache& own,
                                    execute::KvCache& sources) const {
  if (arena_.device().machine().cpu) return absl::OkStatus();
  const std::array<int64_t, 4> spans = {0, *own.rows + batch.tokens, 0,
                                        *sources.rows + batch.source_tokens};
  auto* const there = reinterpret_cast<int64_t*>(arena_.data() + layout_.spans);
  own.device_begins = there;
  own.device_counts = there + 1;
  sources.device_begins = there + 2;
  sources.device_counts = there + 3;
  return execute::CopyMemory(arena_.device(), spans.data(), sizeof(spans), there);
}

absl::StatusOr<std::vector<int32_t>> Generator::Answer(const Question& question) {
  std::vector<int32_t> answer;
  std::span<const int32_t> next = question.prompt, source;
  if (reads_source_) {
    source = question.prompt;
    next = {&start_token_, 1};
  }
  Past past;
  while (static_cast<int64_t>(answer.size()) < question.options.max_new_tokens) {
    RETURN_IF_ERROR(Run(next, source, past));
    Softcap(softcap_, logits_);
    past.tokens += static_cast<int64_t>(next.size());
    past.source += static_cast<int64_t>(std::exchange(source, {}).size());
    const auto drawn = static_cast<int64_t>(answer.size());
    const int32_t token = PickToken(logits_, order_, question.options, question.uniform(drawn));
    if (token < 0) return absl::OutOfRangeError("a logit of a sample is not a number");
    answer.push_back(token);
    if (question.stops(token)) break;
    next = std::span(answer).last(1);
  }
  return answer;
}

}  // namespace snug::train
