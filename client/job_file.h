// A job file and its overrides as the JobSpec that the daemon is asked for.
#ifndef CLIENT_JOB_FILE_H_
#define CLIENT_JOB_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/errors.h"
#include "snug/v1/job.pb.h"

namespace snug::client {

// By its name: .yaml or .yml.
bool IsJobFile(absl::string_view path);

// Reads `file` (- is standard input, paths then relative to here), applies `overrides` (key=value),
// resolves its paths against the file's folder, and names the job after the file when it has no
// name.
absl::StatusOr<v1::JobSpec> ReadJobFile(const std::string& file,
                                        const std::vector<std::string>& overrides);

// Where a job file has which field, for errors of the daemon; nowhere what is overridden. The file
// is read once more, if a field is asked for. Null: `file` is none, or was standard input.
LineOf LinesOf(const std::string& file, const std::vector<std::string>& overrides);

// Makes the paths of a spec absolute (model, datasets, lora.init_adapter, relative to `folder`) and
// reads the chat template and the sample prompts where these are paths. A model that is no path
// there but spelled like a job's id stays as it is; "org/name" is looked up in the caches of
// Hugging Face. Whether the paths exist is for the daemon to say.
absl::Status ResolvePaths(const std::string& folder, v1::JobSpec* spec);

}  // namespace snug::client

#endif  // CLIENT_JOB_FILE_H_
