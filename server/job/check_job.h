// What the files of a job say: config.json, the header of the weights, the adapter to start from.
// Everything short of the dataset's content, so that a wrong job is refused when it is submitted
// and not when a device has been given to it.
#ifndef SERVER_JOB_CHECK_JOB_H_
#define SERVER_JOB_CHECK_JOB_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/job/errors.h"
#include "snug/v1/job.pb.h"
#include "worker/program/program.h"

namespace snug::server {

struct CheckedJob {
  v1::JobSpec spec;       // Defaults filled in; `model` as the user gave it.
  std::string model_dir;  // Of spec.model, or the output of the finished job that it names.
  std::shared_ptr<const program::Program> program = {};  // Large, so all that need it share it.
  std::string weights_digest = {};  // WeightsDigest, unless the job shares nothing.
};

// The output folder of a finished full job.
using FindModelOfJob = std::function<absl::StatusOr<std::string>(const std::string& id)>;

// Whether the adapter to start from, and the datasets, are looked at. Not for a job whose dataset
// is prepared: its stored spec has all that was taken from them, and its user may have moved them
// since.
enum class InputFiles { kNeeded, kDone };

// The folder of spec.model: its path, or the output of the finished job that it names.
absl::StatusOr<std::string> ModelDir(const v1::JobSpec& spec, const FindModelOfJob& find_model);

// What can be said at once: the spec is well-formed, and what it names exists. No file is read.
// INVALID_ARGUMENT with all violations at once.
absl::Status CheckForm(const v1::JobSpec& spec, const FindModelOfJob& find_model,
                       InputFiles inputs = InputFiles::kNeeded);

// Of the files that its datasets are now; 0 for one that is not there.
int64_t DatasetBytes(const v1::JobSpec& spec);

// That the datasets are there.
std::vector<Violation> CheckDatasetFiles(const v1::JobSpec& spec);

// Form, and what the files say, but for the datasets.
absl::StatusOr<CheckedJob> CheckJob(const v1::JobSpec& spec,
                                    const absl::StatusOr<std::string>& model_dir,
                                    InputFiles inputs = InputFiles::kNeeded);

// What a preview needs of a spec: its dataset is a file, what says how to read it is right. The
// model's directory.
absl::StatusOr<std::string> CheckDataset(const v1::JobSpec& spec, const FindModelOfJob& find_model);

program::TaskChoice TaskOf(const v1::JobSpec& spec);
program::TrainingMode ModeOf(const v1::JobSpec& spec);

}  // namespace snug::server

#endif  // SERVER_JOB_CHECK_JOB_H_
