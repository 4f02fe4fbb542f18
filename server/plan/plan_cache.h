// What PlansFor has answered, kept for jobs that ask the same: of a sweep over learning rates or a
// burst of like jobs only the first is worked out. Safe for any thread.
#ifndef SERVER_PLAN_PLAN_CACHE_H_
#define SERVER_PLAN_PLAN_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/plan/planner.h"

namespace snug::server {

class PlanCache {
 public:
  // `max_bytes`: of all answers together; the one that was asked for longest ago goes first.
  explicit PlanCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  // As snug::server::PlansFor. `program` must be BuildProgram's of its config and the spec's mode.
  // Refusals are not kept.
  absl::StatusOr<std::vector<v1::Plan>> PlansFor(const program::Program& program,
                                                 const v1::JobSpec& spec, const RowLengths& lengths,
                                                 const PlanMachine& machine,
                                                 const program::PlanList& list)
      ABSL_LOCKS_EXCLUDED(mutex_);

  int64_t hits() const ABSL_LOCKS_EXCLUDED(mutex_);  // How many were known.

 private:
  // All that an answer depends on.
  struct Question {
    std::string spec;  // Serialised, without what only names the job.
    program::ModelConfig config;
    RowLengths lengths;
    PlanMachine machine;
    program::PlanList list;
  };
  struct Answer {
    Question question;
    std::vector<v1::Plan> plans;
    size_t bytes = 0;
  };

  static bool Alike(const Question& a, const Question& b);

  const size_t max_bytes_;
  mutable absl::Mutex mutex_;
  std::list<Answer> answers_ ABSL_GUARDED_BY(mutex_);  // Newest first.
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t hits_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace snug::server

#endif  // SERVER_PLAN_PLAN_CACHE_H_
