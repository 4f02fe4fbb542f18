// Whether what a worker reports can be true. A worker can be wrong or hostile: nothing of it
// reaches users or metrics unchecked.
#ifndef SERVER_SCHEDULER_REPORTS_H_
#define SERVER_SCHEDULER_REPORTS_H_

#include <cstdint>
#include <string>

#include "snug/v1/worker.pb.h"

namespace snug::server {

// How far the job can go: by its spec, else by what its worker said first; 0: not known yet.
int64_t MaxSteps(const v1::Job& job);

// The reason of a job whose worker makes steps.
inline constexpr const char* kIsTraining = "is training";

// It has made a step of its own.
bool HasTrained(const v1::Job& job);

// What is wrong with it, or nothing. `step_before`: of this attempt; the one before it may have
// been further.
std::string WrongWith(const v1::WorkerEvent::Step& step, int64_t step_before, int64_t max_steps);

// Takes out what cannot be true: how the attempt ended counts all the same.
void DropAbsurd(v1::WorkerResult& result, int64_t max_steps);

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_REPORTS_H_
