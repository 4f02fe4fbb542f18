// How snug-prepare is called, and what it says when it fails.
#ifndef SERVER_DATA_PREPARE_COMMAND_H_
#define SERVER_DATA_PREPARE_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/data/file_server.h"
#include "server/data/prepare.h"
#include "server/node/process.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

// Arguments that say which tokens the tokenizer gets, one each.
std::vector<std::string> AddedTokenOptions(const v1::JobSpec& spec);

// Arguments that say what the dataset holds and what of it is trained; those tokens among them.
std::vector<std::string> DataOptions(const v1::JobSpec& spec);

// How one of the scripts of snug-prepare is run for a job.
struct ScriptRun {
  std::string script;  // Its file.
  const v1::JobSpec& spec;
  const std::string& model_dir;
  const FileServer& files;  // All that the script may read of the model and of rows.
  std::string output;       // The file or folder that it writes.
  const Preparer::Progress& progress;
};

// What both scripts are told, within the limits of the settings, in a process that has no sockets
// and no capabilities, writes in the output's folder alone, which is to be the run's own, and opens
// no file of the user's (server/shim/confine.h): it asks for those that it may read.
RunOptions ScriptCommand(const PrepareSettings& settings, const ScriptRun& run);

// Of snug_prepare.py, but for the sources.
RunOptions PrepareCommand(const PrepareSettings& settings, const ScriptRun& run);

// The script or the Python that is not there, and where another one is named; empty: both are.
std::string MissingPart(const PrepareSettings& settings);

// To its end, which has to be a good one. `field`: of the job, the one that names the rows.
absl::Status RunScript(const RunOptions& command, const std::string& field);

// Of a run whose exit code is not 0: the error in the last line that it wrote. `field`: of the job,
// the one that names the rows.
absl::Status PrepareError(const RunResult& result, const std::string& field);

}  // namespace snug::server

#endif  // SERVER_DATA_PREPARE_COMMAND_H_
