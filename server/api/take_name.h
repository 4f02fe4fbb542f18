// Requests whose fields hold names where they may hold ids: the name taken apart, and the id in its
// place.
#ifndef SERVER_API_TAKE_NAME_H_
#define SERVER_API_TAKE_NAME_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/names.h"

namespace snug::server {

// A checkpoint's or an artifact's name in `id`: that of its job stays there, and the rest goes to
// the fields that it is said by else. INVALID_ARGUMENT: these say something else.
template <typename Request>
absl::Status TakeJobName(Request& request) {
  const std::optional<ResourceName> name = ParseName(request.id());
  // A method that is about no checkpoint does not know one by its name.
  if (!name || name->kind != ResourceName::kJob) return absl::OkStatus();
  if constexpr (requires { request.set_checkpoint_step(0); }) {
    if (name->checkpoint_step) {
      if (request.has_checkpoint_step() && request.checkpoint_step() != *name->checkpoint_step)
        return InvalidRequest({{"checkpoint_step",
                                absl::StrCat(request.checkpoint_step(), ", and the name is of ",
                                             *name->checkpoint_step),
                                "BAD_FIELD"}});
      request.set_checkpoint_step(*name->checkpoint_step);
    }
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
