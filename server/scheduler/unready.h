// Jobs that are to be made ready, in the order in which jobs are asked. Those of a user who has as
// much under way as he may stand apart, and those whose time has not come lie in the order of their
// times, so that a visit does not pass them by one after the other. Pure data.
#ifndef SERVER_SCHEDULER_UNREADY_H_
#define SERVER_SCHEDULER_UNREADY_H_

#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "server/place/job_queue.h"

namespace snug::server {

class Unready {
 public:
  // `user`: whose limit it falls under; empty: nobody's, so that it never stands apart.
  void Add(const JobQueue::Key& key, const std::string& user);
  // The job is gone.
  void Remove(const JobQueue::Key& key, const std::string& user);

  struct Answer {
    enum Kind {
      kDone,      // Nothing more is needed for the job: it leaves.
      kLater,     // It is not asked for again before a time.
      kUserFull,  // Neither it nor another of its user's now.
      kAllFull,   // None now: ends the visit.
    };
    Answer(Kind kind, absl::Duration until = {}) : kind(kind), until(until) {}

    Kind kind;
    absl::Duration until;  // Of kLater.
  };
  // Asks for one after the other. `now` and the times of answers are by one clock. `room_of`: how
  // many more a user may have under way, of one who was full at an earlier visit. Whether some were
  // left because there was no room.
  bool Visit(absl::Duration now, const std::function<size_t(const std::string& user)>& room_of,
             const std::function<Answer(const std::string& job)>& ask);

 private:
  using Jobs = std::map<JobQueue::Key, std::string>;  // -> user.

  Jobs jobs_;
  std::map<std::string, Jobs> apart_;  // By user.
  // By their times. One that is gone meanwhile is asked for once more.
  std::multimap<absl::Duration, Jobs::node_type> later_;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_UNREADY_H_
