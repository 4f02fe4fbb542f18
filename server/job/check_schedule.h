// lr_scheduler_type and lr_scheduler_kwargs of a JobSpec: each schedule takes some of them.
#ifndef SERVER_JOB_CHECK_SCHEDULE_H_
#define SERVER_JOB_CHECK_SCHEDULE_H_

#include "server/job/spec_checker.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

// `learning_rate`: given, or the default.
void CheckSchedule(const v1::TrainingSpec& training, double learning_rate, Checker& check);

}  // namespace snug::server

#endif  // SERVER_JOB_CHECK_SCHEDULE_H_
