// The one step by which a job goes on: (rows, event) -> (rows, actions), and nothing besides. The
// scheduler stores the rows, then shows them and does the actions (core.h: Apply). So whatever rows
// a job can come to is decided here, and job_step_test tests it without a process, a file or a
// clock. That a job is in the queue while it is QUEUED follows from its state, and is no action;
// what is known in memory of its files, plans and checkpoints is the readiness's (readiness.h).
//
// What moves no job is no event: the progress that a worker reports, and why a job waits, are shown
// as they come, and stored now and then or with the next step.
#ifndef SERVER_SCHEDULER_JOB_STEP_H_
#define SERVER_SCHEDULER_JOB_STEP_H_

#include <optional>

#include "absl/status/statusor.h"
#include "server/job/records.h"
#include "server/job/store_thread.h"
#include "server/scheduler/job_event.h"

namespace snug::server {

// As the scheduler has them: what the store has, and what has been reported since.
struct JobRows {
  const JobRecord& job;
  const AttemptRecord* attempt = nullptr;  // The one that is open; null: none is.
};

// What is done once the rows are stored, in this order.
struct JobActions {
  bool drop_attempt = false;    // Its promise, its link and what is known of it go.
  bool shrink_promise = false;  // To what its plan needs: no two plans are paid for any more.
  bool abandon_ready = false;   // What is under way to make the job ready is for nothing.
  bool make_ready = false;      // What the job needs is looked for, unless it is known.
  bool start_worker = false;
  bool stop_worker = false;  // It is told to, over its link.
  bool order_plan = false;   // Its worker is told of the plan that is pending.
  bool keep_plan = false;    // Its worker has refused one, and is asked for no other.
  bool ask_round = false;    // Its place in line has changed, and so who is kept off by it.
  bool drop_job = false;     // It has ended.
};

struct JobStep {
  bool nothing = false;                  // Nothing follows from the event; all else is empty.
  JobRecord job;                         // By then.
  bool same_job = false;                 // Only the attempt has changed.
  std::optional<AttemptRecord> attempt;  // Where it has changed: the open one, or as it is closed.
  Change rest;                           // Of the transaction: what is beside these two rows.
  JobActions actions;
  Urgency urgency = Urgency::kMustLand;

  Change ToChange() const;  // Points into this step.
};

// An error leaves everything as it is: WrongState, where what a user asks for cannot be done in
// this state; INVALID_ARGUMENT with the field of the request; RESOURCE_EXHAUSTED, where a plan is
// too long for the link; INTERNAL, where the event cannot happen in this state: a programmer's
// mistake.
absl::StatusOr<JobStep> StepJob(const JobRows& rows, const JobEvent& event, const Moment& moment);

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_JOB_STEP_H_
