// New jobs of one owner that differ in nothing but their names, as a burst of submits has them.
// What the files say and what the plans are is worked out once for all of them that asked before
// that work began.
#ifndef SERVER_SCHEDULER_LIKE_JOBS_H_
#define SERVER_SCHEDULER_LIKE_JOBS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/job/records.h"
#include "server/scheduler/readiness.h"

namespace snug::server {

// Jobs of the same key are alike. One that goes on behind a checkpoint is like no other.
std::string AlikeKey(const JobRecord& record);

class LikeJobs {
 public:
  struct Member {
    std::string job;  // Its own key.
    Readiness::Abandoned run;
  };

  // True: it is the first, so the work has to be begun. False: work that has not begun yet answers
  // for it, too.
  bool Add(const std::string& key, Member member) ABSL_LOCKS_EXCLUDED(mutex_);
  // The work begins, or will not be done. Those it answers for, in the order in which they asked.
  std::vector<Member> Take(const std::string& key) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::vector<Member>> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_LIKE_JOBS_H_
