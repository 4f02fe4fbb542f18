#include "worker/execute/view.h"

namespace snug::execute {

int64_t Batch::Of(program::Rows rows) const {
  switch (rows) {
    case program::Rows::kTokens:
      return tokens;
    case program::Rows::kDocuments:
      return documents;
    case program::Rows::kTrained:
      return trained;
    case program::Rows::kSource:
      return source_tokens;
    case program::Rows::kMerged1:
      return merged[0];
    case program::Rows::kMerged2:
      return merged[1];
    case program::Rows::kMerged3:
      return merged[2];
  }
  return 0;
}

}  // namespace snug::execute
