#include "client/hub_id.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace snug::client {
namespace {

constexpr size_t kMaxNameBytes = 96;

// Why the hub would not take it; empty: it does.
std::string NameFault(const std::string& name) {
  if (name.empty()) return "has an empty part";
  if (name.size() > kMaxNameBytes)
    return absl::StrCat("has a part of ", name.size(), " characters; at most ", kMaxNameBytes,
                        " are allowed");
  const auto allowed = [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
  };
  if (!std::all_of(name.begin(), name.end(), allowed))
    return "has something else than letters, digits, '-', '_' and '.'";
  const auto outer = [](char c) { return c == '-' || c == '.'; };
  if (outer(name.front()) || outer(name.back())) return "has a '-' or '.' at an end of a part";
  if (absl::StrContains(name, "--") || absl::StrContains(name, "..")) return "has \"--\" or \"..\"";
  return "";
}

std::string IdFault(const std::string& id) {
  const std::vector<std::string> parts = absl::StrSplit(id, '/');
  for (const std::string& part : parts)
    if (std::string fault = NameFault(part); !fault.empty()) return fault;
  return absl::EndsWith(id, ".git") ? "ends with \".git\"" : "";
}

}  // namespace

absl::Status CheckRepoId(const std::string& what, const std::string& id) {
  const bool has_both = std::count(id.begin(), id.end(), '/') == 1;
  const std::string fault = has_both ? IdFault(id) : "is not of the form org/name";
  if (fault.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": \"", id, "\" ", fault));
}

std::optional<std::string> HubIdOfFolder(const std::string& folder) {
  const std::vector<std::string> parts = absl::StrSplit(folder, '/', absl::SkipEmpty());
  if (parts.size() < 3 || parts[parts.size() - 2] != "snapshots") return std::nullopt;
  const std::vector<std::string> id = absl::StrSplit(parts[parts.size() - 3], "--");
  if (id.size() < 2 || id.size() > 3 || id[0] != "models") return std::nullopt;
  std::string name = absl::StrJoin(id.begin() + 1, id.end(), "/");
  if (!IdFault(name).empty()) return std::nullopt;
  return name;
}

}  // namespace snug::client
