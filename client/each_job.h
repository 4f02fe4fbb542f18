// One call for each job that a command line names.
#ifndef CLIENT_EACH_JOB_H_
#define CLIENT_EACH_JOB_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/command_line.h"
#include "client/connection.h"

namespace snug::client {

using AskOfJob = std::function<absl::StatusOr<v1::Job>(Connection&, const std::string& id)>;
using JobInWords = std::function<std::string(const v1::Job&)>;  // One line, for people.

// Asks for each job of `line.jobs`, also behind one that is refused, and prints each answer. The
// first error is the command's; it prints the others itself.
absl::StatusOr<int> ForEachJob(const CommandLine& line, Terminal& terminal, const AskOfJob& ask,
                               const JobInWords& words);

}  // namespace snug::client

#endif  // CLIENT_EACH_JOB_H_
