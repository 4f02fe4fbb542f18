// Requests whose fields hold names where they may hold ids: the name taken apart, and the id in its
// place.
#ifndef SERVER_API_TAKE_NAME_H_
#define SERVER_API_TAKE_NAME_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/job_key.h"
#include "server/job/job_ref.h"
#include "server/job/names.h"

namespace snug::server {

template <typename Request>
absl::Status TakeStep(int64_t step, Request& request) {
  if (request.has_checkpoint_step() && request.checkpoint_step() != step)
    return InvalidRequest(
        {{"checkpoint_step", absl::StrCat(request.checkpoint_step(), ", and the name is of ", step),
          "BAD_FIELD"}});
  request.set_checkpoint_step(step);
  return absl::OkStatus();
}

// JOB/checkpoints/STEP, as a job file names a checkpoint, also of ID.TENANT: JOB stays in `id`.
template <typename Request>
absl::Status TakeJobRef(Request& request) {
  if constexpr (requires { request.set_checkpoint_step(0); }) {
    const std::string id = request.id();
    const size_t slash = std::min(id.find('/'), id.size());
    const std::string job = id.substr(0, slash), spelled = NameSpelled(job);
    const std::optional<JobRef> ref =
        ParseJobRef(spelled.empty() ? id : spelled + id.substr(slash));
    if (!ref || !ref->step) return absl::OkStatus();
    RETURN_IF_ERROR(TakeStep(*ref->step, request));
    request.set_id(job);
  }
  return absl::OkStatus();
}

// A checkpoint's or an artifact's name in `id`: that of its job stays there, and the rest goes to
// the fields that it is said by else. INVALID_ARGUMENT: these say something else.
template <typename Request>
absl::Status TakeJobName(Request& request) {
  const std::optional<ResourceName> name = ParseName(request.id());
  if (!name) return TakeJobRef(request);
  // A method that is about no checkpoint does not know one by its name.
  if (name->kind != ResourceName::kJob) return absl::OkStatus();
  if constexpr (requires { request.set_checkpoint_step(0); }) {
    if (name->checkpoint_step) RETURN_IF_ERROR(TakeStep(*name->checkpoint_step, request));
    bool whole = name->artifact.empty();
    if constexpr (requires { request.set_path(""); }) {
      if (!whole && !request.path().empty() && request.path() != name->artifact)
        return InvalidRequest({{"path", "is another than the name's", "BAD_FIELD"}});
      if (!whole) request.set_path(name->artifact);
      whole = true;
    }
    if (whole) request.set_id(JobName(name->tenant, name->id));
  }
  return absl::OkStatus();
}

// The parent of a list or of what is made is empty or the caller's own tenant; else
// INVALID_ARGUMENT.
absl::Status CheckParent(const std::string& parent, const std::string& tenant);

// `tenant`: of who asks. A name of another's file is left as it is, which no id is.
template <typename Request>
absl::Status TakeName(const std::string& tenant, Request& request) {
  if constexpr (requires { request.set_id(""); }) RETURN_IF_ERROR(TakeJobName(request));
  if constexpr (requires { request.set_file(""); })
    request.set_file(IdOf(ResourceName::kDataset, tenant, request.file()));
  if constexpr (requires { request.set_device(""); })
    request.set_device(DeviceOf(request.device()));
  return absl::OkStatus();
}

}  // namespace snug::server

#endif  // SERVER_API_TAKE_NAME_H_
