// A job in words.
#ifndef CLIENT_JOB_TEXT_H_
#define CLIENT_JOB_TEXT_H_

#include <ostream>
#include <string>

#include "absl/time/time.h"
#include "snug/v1/job.pb.h"

namespace snug::client {

std::string StateName(v1::Job::State state);  // RUNNING
// What stays that job's, whoever else has one of its id: to ask for it again.
const std::string& NameOf(const v1::Job& job);
bool HasEnded(v1::Job::State state);

std::string DurationText(absl::Duration duration);  // 12s, 2m03s, 1h02m, 3d04h

// "1.1 GiB of 1.2 GiB": measured against what is reserved; "1.2 GiB" before anything was measured.
std::string MemoryText(const v1::JobMemory& memory);

// "PLAN_INFEASIBLE: message (field)".
std::string ErrorText(const v1::Error& error);

// "accuracy 0.9333, f1 0.9000": the figures of the last evaluation but its loss; empty before one.
std::string EvaluationText(const v1::Progress& progress);

// One job in full: a line per subject. `zone` is for its times.
void PrintJob(const v1::Job& job, absl::TimeZone zone, std::ostream& out);

}  // namespace snug::client

#endif  // CLIENT_JOB_TEXT_H_
