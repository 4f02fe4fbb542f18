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
#include "server/data/held_files.h"
#include "server/job/errors.h"
#include "server/job/origins.h"
#include "snug/v1/job.pb.h"
#include "snug/v1/worker.pb.h"
#include "worker/program/program.h"

namespace snug::server {

struct CheckedJob {
  v1::JobSpec spec;       // Defaults filled in; `model` as the user gave it.
  std::string model_dir;  // Of spec.model, or of the job that it names.
  // Of spec.lora.init_adapter, or of the job that it names; empty: there is none, or its inputs are
  // done.
  std::string adapter_dir = {};
  // A folder with a checkpoint of another job, whose weights this one begins with; empty: none.
  std::string start_from = {};
  // Of model and adapter, what was opened as the job's owner; null: nobody has opened any of it.
  std::shared_ptr<const v1::OpenedFiles> opened = {};
  std::shared_ptr<const program::Program> program = {};  // Large, so all that need it share it.
  std::string weights_digest = {};  // WeightsDigest, unless the job shares nothing.
};

// How the adapter to start from, and the datasets, are looked at.
enum class InputFiles {
  kNeeded,  // Each file.
  kNamed,   // What the spec names, not what lies in it: a folder may hold a hundred thousand files.
  // Not at all, of a job whose dataset is prepared: its stored spec has all that was taken from
  // them, and its user may have moved them since.
  kDone,
};

// In all of these `reach` is that of whoever asks: what he cannot see is not looked at for him.

// What can be said at once: the spec is well-formed, and what it names exists. No file is read.
// INVALID_ARGUMENT with all violations at once.
absl::Status CheckForm(const v1::JobSpec& spec, const Origins& origins,
                       InputFiles inputs = InputFiles::kNamed, const Reach& reach = {});

// That the datasets are there.
std::vector<Violation> CheckDatasetFiles(const v1::JobSpec& spec, const Reach& reach = {});

// Form, and what the files say, but for the datasets.
absl::StatusOr<CheckedJob> CheckJob(const v1::JobSpec& spec,
                                    const absl::StatusOr<std::string>& model_dir,
                                    InputFiles inputs = InputFiles::kNeeded);

// What a preview needs of a spec: its dataset is a file, what says how to read it is right. The
// model's directory.
absl::StatusOr<std::string> CheckDataset(const v1::JobSpec& spec, const Origins& origins,
                                         const Reach& reach = {});

program::TaskChoice TaskOf(const v1::JobSpec& spec);
program::TrainingMode ModeOf(const v1::JobSpec& spec);

}  // namespace snug::server

#endif  // SERVER_JOB_CHECK_JOB_H_
