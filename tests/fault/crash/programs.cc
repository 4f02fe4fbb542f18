#include "tests/fault/crash/programs.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"

namespace snug::crash {
namespace {

absl::StatusOr<std::string> Environment(const char* name) {
  const char* value = std::getenv(name);
  if (value != nullptr && *value != '\0') return std::string(value);
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is not set: run it by ctest, or as tests/fault/README.md says"));
}

}  // namespace

absl::StatusOr<Programs> ProgramsOfEnvironment() {
  Programs programs;
  ASSIGN_OR_RETURN(programs.daemon, Environment("SNUG_FAILING_DAEMON"));
  ASSIGN_OR_RETURN(programs.shim, Environment("SNUG_FAILING_SHIM"));
  ASSIGN_OR_RETURN(programs.worker, Environment("SNUG_FAKE_WORKER"));
  ASSIGN_OR_RETURN(const std::string bin, Environment("SNUG_BIN_DIR"));
  programs.inspect = bin + "/snug-inspect";
  programs.launch = bin + "/snug-launch";
  return programs;
}

}  // namespace snug::crash
