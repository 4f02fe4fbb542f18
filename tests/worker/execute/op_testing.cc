#include "tests/worker/execute/op_testing.h"

#include <cmath>

namespace snug::execute {

TestBatch::TestBatch(const std::vector<int64_t>& lengths) {
  offsets.push_back(0);
  for (int64_t length : lengths) {
    for (int64_t t = 0; t < length; ++t) {
      const auto n = static_cast<int64_t>(ids.size());
      ids.push_back(static_cast<int32_t>(n * 7 % 5));
      labels.push_back(static_cast<int32_t>(n * 3 % 11));
      weights.push_back(n % 4 == 2 ? 0.0f : 1.0f + 0.5f * static_cast<float>(n % 2));
      positions.push_back(static_cast<int32_t>(t));
      for (int i = 0; i < 4; ++i) {
        const double angle = static_cast<double>(t) * std::pow(0.3, i);
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
        local_cos.push_back(static_cast<float>(std::cos(3.0 * angle)));
        local_sin.push_back(static_cast<float>(std::sin(3.0 * angle)));
      }
    }
    offsets.push_back(static_cast<int64_t>(ids.size()));
  }
  batch = {.tokens = static_cast<int64_t>(ids.size()),
           .documents = static_cast<int64_t>(lengths.size()),
           .ids = ids.data(),
           .positions = positions.data(),
           .offsets = offsets.data(),
           .device_offsets = offsets.data(),
           .cos = cos.data(),
           .sin = sin.data(),
           .local_cos = local_cos.data(),
           .local_sin = local_sin.data()};
}

const TestBatch& Documents() {
  static const TestBatch& batch = *new TestBatch({13, 1, 40, 5});
  return batch;
}

}  // namespace snug::execute
