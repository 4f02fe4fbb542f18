// Jobs name files that were uploaded by ids or names where others name paths.
#ifndef SERVER_API_FILE_IDS_H_
#define SERVER_API_FILE_IDS_H_

#include "absl/status/status.h"
#include "server/job/principal.h"
#include "server/upload/uploads.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

// Each dataset that is an id, or a name, becomes the path of that file of his. INVALID_ARGUMENT
// names the field of an id that he has no file of.
absl::Status ResolveFiles(const Principal& who, const Uploads& uploads, v1::JobSpec& spec);

// FAILED_PRECONDITION: he has none, for his files are on this machine.
absl::Status CheckMayUpload(const Principal& who);

}  // namespace snug::server

#endif  // SERVER_API_FILE_IDS_H_
