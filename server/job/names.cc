#include "server/job/names.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/job/principal.h"

namespace snug::server {
namespace {

// Splits off the first two parts, of which the first is `collection`. Nothing: they are not there.
std::optional<absl::string_view> Take(absl::string_view collection, absl::string_view& text) {
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, collection) || !absl::ConsumePrefix(&rest, "/"))
    return std::nullopt;
  const size_t end = rest.find('/');
  const absl::string_view id = rest.substr(0, end);
  if (id.empty()) return std::nullopt;
  text = end == absl::string_view::npos ? absl::string_view() : rest.substr(end + 1);
  // A slash at the end is of no name.
  if (end != absl::string_view::npos && text.empty()) return std::nullopt;
  return id;
}

std::optional<int64_t> StepOf(absl::string_view text) {
  int64_t step = 0;
  if (!absl::SimpleAtoi(text, &step) || step < 0 || absl::StrCat(step) != text) return std::nullopt;
  return step;
}

// What may stand behind a job.
bool ParseRest(absl::string_view rest, ResourceName& name) {
  if (absl::StartsWith(rest, "checkpoints/")) {
    const std::optional<absl::string_view> step = Take("checkpoints", rest);
    name.checkpoint_step = step ? StepOf(*step) : std::nullopt;
    if (!name.checkpoint_step) return false;
  }
  if (absl::ConsumePrefix(&rest, "artifacts/")) {
    name.artifact = std::string(rest);
    return !name.artifact.empty();
  }
  return rest.empty();
}

}  // namespace

std::optional<ResourceName> ParseName(absl::string_view text) {
  const std::optional<absl::string_view> tenant = Take("tenants", text);
  if (!tenant) return std::nullopt;
  constexpr std::pair<const char*, ResourceName::Kind> kKinds[] = {
      {"jobs", ResourceName::kJob},
      {"datasets", ResourceName::kDataset},
      {"tokens", ResourceName::kToken}};
  for (const auto& [collection, kind] : kKinds) {
    const std::optional<absl::string_view> id = Take(collection, text);
    if (!id) continue;
    ResourceName name{.kind = kind, .tenant = std::string(*tenant), .id = std::string(*id)};
    const bool whole = kind == ResourceName::kJob ? ParseRest(text, name) : text.empty();
    return whole ? std::optional(std::move(name)) : std::nullopt;
  }
  return std::nullopt;
}

std::string JobName(absl::string_view tenant, absl::string_view job) {
  return absl::StrCat("tenants/", tenant, "/jobs/", job);
}

std::string JobName(const v1::Job& job) { return JobName(TenantOf(job.owner()), job.id()); }

std::string JobCheckpointName(const v1::Job& job, int64_t step) {
  return absl::StrCat(JobName(job), "/checkpoints/", step);
}

std::string ArtifactName(const v1::Job& job, std::optional<int64_t> step, absl::string_view path) {
  return absl::StrCat(step ? JobCheckpointName(job, *step) : JobName(job), "/artifacts/", path);
}

std::string DatasetName(absl::string_view tenant, absl::string_view file) {
  return absl::StrCat("tenants/", tenant, "/datasets/", file);
}

std::string TokenName(absl::string_view tenant, absl::string_view token) {
  return absl::StrCat("tenants/", tenant, "/tokens/", token);
}

std::string IdOf(ResourceName::Kind kind, absl::string_view tenant, absl::string_view name) {
  const std::optional<ResourceName> parsed = ParseName(name);
  const bool is = parsed && parsed->kind == kind && parsed->tenant == tenant &&
                  !parsed->checkpoint_step && parsed->artifact.empty();
  return is ? parsed->id : std::string(name);
}

std::string DeviceOf(absl::string_view name) {
  return std::string(absl::StripPrefix(name, "devices/"));
}

}  // namespace snug::server
