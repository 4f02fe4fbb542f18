#include "tests/bench/kernels/rows.h"

namespace snug::bench {

at::ScalarType Operands::type() const {
  constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};
  return kTypes[static_cast<int>(dtype)];
}

std::vector<Row> AllRows() {
  std::vector<Row> rows;
  for (const auto& group : {NormRows, ActivationRows, StashRows, TokenRows, HeadRows, SamplingRows,
                            StreamRows, WeightRows, OptimizerRows, AttentionRows}) {
    for (const Row& row : group()) rows.push_back(row);
  }
  return rows;
}

}  // namespace snug::bench
