// What an adapter says that it is of.
#ifndef WORKER_PROGRAM_BASE_MODEL_H_
#define WORKER_PROGRAM_BASE_MODEL_H_

#include <string>

namespace snug::program {

struct BaseModel {
  std::string name;
  std::string revision;  // Empty where the name has none.
};

// Of a model's folder: where it is a snapshot in a Hugging Face cache
// (HUB/models--org--name/snapshots/COMMIT) its id on the hub and the commit, which others have,
// too; else its path.
BaseModel BaseModelOf(const std::string& folder);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_BASE_MODEL_H_
