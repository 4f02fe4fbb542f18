// The one table of who may call what, and about which jobs. A method that it does not name may be
// called by nobody.
#ifndef SERVER_API_AUTHORISE_H_
#define SERVER_API_AUTHORISE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/job/job_index.h"
#include "server/job/principal.h"

namespace snug::server {

// UNAUTHENTICATED: nobody knows who calls. PERMISSION_DENIED: he may not call this.
absl::Status MayCall(const std::optional<Principal>& principal, absl::string_view method);

// The key of the job that the call is about, of which `job` is the id, an unambiguous beginning of
// it, the name or ID.TENANT; empty for a method that names none. As MayCall; and NOT_FOUND: no
// such job, or none that is his, in the same words.
absl::StatusOr<std::string> Authorise(const std::optional<Principal>& principal,
                                      absl::string_view method, const std::string& job,
                                      const JobIndex& index);

// Whether the method may leave something else than it was: such calls are in the audit log.
bool ChangesSomething(absl::string_view method);

}  // namespace snug::server

#endif  // SERVER_API_AUTHORISE_H_
