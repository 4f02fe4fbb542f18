#include "worker/program/files/base_model.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace snug::program {

BaseModel BaseModelOf(const std::string& origin) {
  if (absl::StartsWith(origin, kJobsPrefix))
    return {.name = "", .revision = "", .job = origin.substr(sizeof(kJobsPrefix) - 1)};
  const BaseModel folder = {.name = origin, .revision = "", .job = ""};
  const std::vector<std::string> parts = absl::StrSplit(origin, '/', absl::SkipEmpty());
  if (parts.size() < 3 || parts[parts.size() - 2] != "snapshots") return folder;
  const std::vector<std::string> id = absl::StrSplit(parts[parts.size() - 3], "--");
  if (id.size() < 2 || id.size() > 3 || id[0] != "models") return folder;
  return {absl::StrJoin(id.begin() + 1, id.end(), "/"), parts.back(), ""};
}

}  // namespace snug::program
