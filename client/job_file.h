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

// Returns what `file` holds; - is standard input, which can be read once.
absl::StatusOr<std::string> ReadJobFile(const std::string& file);

// The job that `text` asks for, which is what `file` holds: applies `overrides` (key=value),
// resolves its paths against the file's folder (those of standard input against the working
// folder), and names the job after the file when it has no name.
absl::StatusOr<v1::JobSpec> ParseJobFile(const std::string& text, const std::string& file,
                                         const std::vector<std::string>& overrides);

// Where the text of a job file has which field, for errors of the daemon; nowhere what is
// overridden. The text may be JSON, which is YAML.
LineOf LinesOf(const std::string& text, const std::vector<std::string>& overrides);

// Makes the paths of a spec absolute (model, datasets, lora.init_adapter, relative to `folder`) and
// reads the chat template and the sample prompts where these are paths. A model that is no path
// there but spelled like a job's id stays as it is; "org/name" is looked up in the caches of
// Hugging Face. Whether the paths exist is for the daemon to say.
absl::Status ResolvePaths(const std::string& folder, v1::JobSpec* spec);

}  // namespace snug::client

#endif  // CLIENT_JOB_FILE_H_
