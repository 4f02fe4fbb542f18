#include "server/api/file_ids.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/job/errors.h"
#include "server/job/names.h"

namespace snug::server {
namespace {

void Resolve(const Principal& who, const Uploads& uploads, const std::string& field,
             std::string& dataset, std::vector<Violation>& found) {
  const std::optional<ResourceName> name = ParseName(dataset);
  const bool named = name && name->kind == ResourceName::kDataset;
  if (!IsFileId(dataset) && !named) return;
  const std::string id = IdOf(ResourceName::kDataset, TenantOf(who.name()), dataset);
  absl::StatusOr<std::string> path = uploads.PathForJob(who.name(), id);
  if (path.ok())
    dataset = *std::move(path);
  else
    found.push_back({field, std::string(path.status().message()), "FILE_NOT_FOUND"});
}

}  // namespace

absl::Status ResolveFiles(const Principal& who, const Uploads& uploads, v1::JobSpec& spec) {
  std::vector<Violation> found;
  Resolve(who, uploads, "spec.dataset", *spec.mutable_dataset(), found);
  Resolve(who, uploads, "spec.eval_dataset", *spec.mutable_eval_dataset(), found);
  for (int i = 0; i < spec.datasets_size(); ++i)
    Resolve(who, uploads, absl::StrCat("spec.datasets[", i, "].path"),
            *spec.mutable_datasets(i)->mutable_path(), found);
  return found.empty() ? absl::OkStatus() : InvalidRequest(found);
}

absl::Status CheckMayUpload(const Principal& who) {
  if (who.trusted || !who.tenant.empty()) return absl::OkStatus();
  return WithReason(
      absl::FailedPreconditionError(
          "your files are on this machine: a job names them by their paths, below the daemon's "
          "roots"),
      "NO_UPLOADS");
}

}  // namespace snug::server
