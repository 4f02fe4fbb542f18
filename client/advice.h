// What is likely a mistake in a job, though it can be run, and what to try when one has failed.
#ifndef CLIENT_ADVICE_H_
#define CLIENT_ADVICE_H_

#include <string>
#include <vector>

#include "snug/v1/job.pb.h"

namespace snug::client {

// One sentence each; said before a job runs.
std::vector<std::string> NotesOf(const v1::JobSpec& spec);

// What to try, of a job that failed for a reason that settings cause; else empty.
std::string WhatToTry(const v1::Job& job);

}  // namespace snug::client

#endif  // CLIENT_ADVICE_H_
