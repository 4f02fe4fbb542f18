// Names of resources: what an answer has in a `name`, every method that takes that thing's id takes
// in its place.
//
//   tenants/TENANT/jobs/JOB
//   tenants/TENANT/jobs/JOB/artifacts/PATH
//   tenants/TENANT/jobs/JOB/checkpoints/STEP
//   tenants/TENANT/jobs/JOB/checkpoints/STEP/artifacts/PATH
//   tenants/TENANT/datasets/FILE
//   tenants/TENANT/tokens/TOKEN
//
// A device is no tenant's: devices/gpu:0, and its name alone is short for that.
#ifndef SERVER_JOB_NAMES_H_
#define SERVER_JOB_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

struct ResourceName {
  enum Kind { kJob, kDataset, kToken };

  Kind kind = kJob;
  std::string tenant;
  std::string id;                          // Of the job, the file or the token.
  std::optional<int64_t> checkpoint_step;  // Of a job's checkpoint.
  std::string artifact;                    // The path of a file of the job's; empty: it names none.

  bool operator==(const ResourceName&) const = default;
};

// No id has a slash in it, and every name has.
inline bool IsName(absl::string_view text) { return text.find('/') != absl::string_view::npos; }
// Nothing: it is no name. One that says a step in another way than names do is none.
std::optional<ResourceName> ParseName(absl::string_view text);

std::string JobName(absl::string_view tenant, absl::string_view job);
// The same of a job that there is, whoever's it is.
std::string JobName(const v1::Job& job);
std::string JobCheckpointName(const v1::Job& job, int64_t step);
// Of the job's output, or of a checkpoint of it.
std::string ArtifactName(const v1::Job& job, std::optional<int64_t> step, absl::string_view path);
std::string DatasetName(absl::string_view tenant, absl::string_view file);
std::string TokenName(absl::string_view tenant, absl::string_view token);

// The id where `name` is that of such a thing of the tenant; else `name` as it is, which is then
// nothing's id.
std::string IdOf(ResourceName::Kind kind, absl::string_view tenant, absl::string_view name);
// Without "devices/".
std::string DeviceOf(absl::string_view name);

}  // namespace snug::server

#endif  // SERVER_JOB_NAMES_H_
