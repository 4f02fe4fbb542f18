#include "server/sim/policy.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace snug::server::sim {

const std::vector<std::string>& PolicyNames() {
  static const auto* const names =
      new std::vector<std::string>{"snug", "exclusive", "fixed", "carma", "oracle"};
  return *names;
}

absl::StatusOr<std::unique_ptr<Policy>> PolicyNamed(const std::string& name,
                                                    const PolicyOptions& options) {
  if (name == "snug") return MakeSnug();
  if (name == "exclusive") return MakeExclusive();
  if (name == "fixed") return MakeFixed();
  if (name == "carma") return MakeCarma();
  if (name == "oracle") return MakeOracle(options.interference);
  return absl::InvalidArgumentError(
      absl::StrCat("no policy \"", name, "\"; there are ", absl::StrJoin(PolicyNames(), ", ")));
}

}  // namespace snug::server::sim
