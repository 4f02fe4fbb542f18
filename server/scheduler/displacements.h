// Jobs that leave a device because they slow another one more than that one allows.
//
// Which job is slowed too much is said by its steps (interference.h). Of its neighbours that are
// behind it in line the last one saves a checkpoint after its next step and goes back to its place
// in the queue: to another device that has room, or to wait. It costs that job no retry. For a
// while, twice as long each time (SchedulerLimits::keep_off), or until the attempt that was slowed
// ends, its device takes no more jobs from behind it in line than have stayed beside it
// (place/policy.h: RunningJob::bears), so that nobody comes and goes by turns; then, should it
// still be too slow, the next one leaves. Who is about to end is not made to leave. Where all other
// neighbours are ahead of the job, it stays as slow as it is, and its reason says so.
//
// Something else than its jobs slows a device from which one has left in vain: for as long as it
// would have been kept off, nobody leaves for anybody there.
//
// No neighbour is squeezed for it: a worker keeps its threads, and a smaller plan computes more.
//
// That a job leaves is stored before its worker hears of it, and outlives the daemon. What a job
// bears does not: its steps tell that anew, at the price of another departure at most.
#ifndef SERVER_SCHEDULER_DISPLACEMENTS_H_
#define SERVER_SCHEDULER_DISPLACEMENTS_H_

#include <string>

#include "server/scheduler/core.h"
#include "server/scheduler/interference.h"

namespace snug::server {

// A part of the scheduler: on its thread, over its state.
class Displacer {
 public:
  explicit Displacer(SchedulerCore& core) : core_(core) {}

  // The job's worker has made a step, in `ratio` times the time that its plan predicts.
  void OnStep(Entry& entry, double ratio) const;
  // The reason of a job whose worker makes steps.
  std::string ReasonAtWork(const Entry& entry) const;

 private:
  // It makes steps, and nobody has told it to end.
  bool IsAtWork(const Entry& entry) const;
  Company CompanyOf(const Entry& entry) const;
  // Nobody leaves for another one there now.
  bool IsInVain(const Entry& entry) const;
  // The last in line of its neighbours that do not end soon; null: all are ahead of it.
  Entry* LastBehind(const Entry& entry) const;
  void MakeLeave(Entry& neighbour, Entry& slowed) const;

  SchedulerCore& core_;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_DISPLACEMENTS_H_
