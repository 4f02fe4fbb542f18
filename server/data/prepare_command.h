// How snug-prepare is called, and what it says when it fails.
#ifndef SERVER_DATA_PREPARE_COMMAND_H_
#define SERVER_DATA_PREPARE_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/data/prepare.h"
#include "server/node/process.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

// Arguments that say which tokens the tokenizer gets, one each.
std::vector<std::string> AddedTokenOptions(const v1::JobSpec& spec);

// Arguments that say what the dataset holds and what of it is trained; those tokens among them.
std::vector<std::string> DataOptions(const v1::JobSpec& spec);

// The command but for the sources and the output, within the limits of the settings.
RunOptions PrepareCommand(const PrepareSettings& settings, const v1::JobSpec& spec,
                          const std::string& model_dir);

// Of a run whose exit code is not 0: the error in the last line that it wrote. `field`: of the job,
// the one that names the rows.
absl::Status PrepareError(const RunResult& result, const std::string& field);

}  // namespace snug::server

#endif  // SERVER_DATA_PREPARE_COMMAND_H_
