// What an adapter says that it is of.
#ifndef WORKER_PROGRAM_FILES_BASE_MODEL_H_
#define WORKER_PROGRAM_FILES_BASE_MODEL_H_

#include <string>

namespace snug::program {

// How an assignment names a base that a job made: "jobs/JOB", or of its checkpoint
// "jobs/JOB/checkpoints/STEP", where JOB is an id, or the name of another tenant's job.
inline constexpr char kJobsPrefix[] = "jobs/";

struct BaseModel {
  std::string name;      // Empty: none that others know.
  std::string revision;  // Empty where the name has none.
  std::string job;       // That made it, or its checkpoint; empty: no job of this daemon did.
};

// Of a model's folder: where it is a snapshot in a Hugging Face cache
// (HUB/models--org--name/snapshots/COMMIT) its id on the hub and the commit, which others have,
// too; else its path. Of "jobs/ID" the job: where the daemon keeps its output is nobody's business,
// and what that job began with is another model.
BaseModel BaseModelOf(const std::string& origin);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_FILES_BASE_MODEL_H_
