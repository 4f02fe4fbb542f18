// What a worker has measured of its job's inexact gradient, and when that is too far from the exact
// one. Pure.
#ifndef SERVER_SCHEDULER_DRIFT_H_
#define SERVER_SCHEDULER_DRIFT_H_

#include <string>

#include "snug/v1/job.pb.h"
#include "snug/v1/worker.pb.h"

namespace snug::server {

// Takes a report's measurements, which were found believable, into the job. Gives why the job is to
// be paused: one that is new is beyond its memory.drift_bound; else nothing. A bound holds kinds
// that are approximate: of an unbiased one the error of a draw says nothing of the mean.
std::string NoteDrift(const v1::WorkerEvent::Step& report, v1::Job& job);

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_DRIFT_H_
