#include "worker/program/tape_key.h"

#include <algorithm>

namespace snug::program {
namespace {

// Every coordinate of a key, so that no function of it forgets one.
template <typename Visit>
void ForEachSize(const Visit& visit) {
  visit([](auto& key) -> auto& { return key.tokens; });
  visit([](auto& key) -> auto& { return key.documents; });
  visit([](auto& key) -> auto& { return key.longest_document; });
  visit([](auto& key) -> auto& { return key.trained; });
  visit([](auto& key) -> auto& { return key.source_tokens; });
  visit([](auto& key) -> auto& { return key.longest_source; });
  for (size_t i = 0; i < kMergedStages; ++i) {
    visit([i](auto& key) -> auto& { return key.merged[i]; });
  }
}

// The coordinate that says how many `rows` there are, of a key or of one that does not change.
template <typename Key>
auto& SizeOfRows(Key& key, Rows rows) {
  switch (rows) {
    case Rows::kTokens:
      break;
    case Rows::kDocuments:
      return key.documents;
    case Rows::kTrained:
      return key.trained;
    case Rows::kSource:
      return key.source_tokens;
    case Rows::kMerged1:
      return key.merged[0];
    case Rows::kMerged2:
      return key.merged[1];
    case Rows::kMerged3:
      return key.merged[2];
  }
  return key.tokens;
}

}  // namespace

int64_t TapeKey::Of(Rows rows) const {
  return rows == Rows::kTrained && trained == 0 ? tokens : SizeOfRows(*this, rows);
}

TapeKey TapeKey::Limited(Rows rows, int64_t most) const {
  TapeKey limited = *this;
  SizeOfRows(limited, rows) = std::min(Of(rows), most);
  return limited;
}

bool TapeKey::Covers(const TapeKey& batch) const {
  bool covers = true;
  TapeKey room = *this;
  room.trained = Of(Rows::kTrained);
  ForEachSize([&](const auto& size) { covers = covers && size(batch) <= size(room); });
  return covers;
}

TapeKey TapeKey::Joined(const TapeKey& other) const {
  TapeKey joined = *this;
  ForEachSize([&](const auto& size) { size(joined) = std::max(size(joined), size(other)); });
  if (joined.trained > 0) joined.trained = std::max(Of(Rows::kTrained), other.Of(Rows::kTrained));
  return joined;
}

}  // namespace snug::program
