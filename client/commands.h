// One function per command. Each gives the exit code, or says what went wrong in words for the
// user.
#ifndef CLIENT_COMMANDS_H_
#define CLIENT_COMMANDS_H_

#include "absl/status/statusor.h"
#include "client/command_line.h"
#include "client/connection.h"

namespace snug::client {

absl::StatusOr<int> PlanJob(const CommandLine& line, Terminal& terminal);           // plan.cc
absl::StatusOr<int> SubmitJob(const CommandLine& line, Terminal& terminal);         // submit.cc
absl::StatusOr<int> ListJobs(const CommandLine& line, Terminal& terminal);          // query.cc
absl::StatusOr<int> GetJob(const CommandLine& line, Terminal& terminal);            // query.cc
absl::StatusOr<int> ListDevices(const CommandLine& line, Terminal& terminal);       // devices.cc
absl::StatusOr<int> OpenPage(const CommandLine& line, Terminal& terminal);          // open.cc
absl::StatusOr<int> DrainDevice(const CommandLine& line, Terminal& terminal);       // devices.cc
absl::StatusOr<int> UndrainDevice(const CommandLine& line, Terminal& terminal);     // devices.cc
absl::StatusOr<int> ShowTop(const CommandLine& line, Terminal& terminal);           // top.cc
absl::StatusOr<int> CancelJob(const CommandLine& line, Terminal& terminal);         // query.cc
absl::StatusOr<int> PauseJob(const CommandLine& line, Terminal& terminal);          // query.cc
absl::StatusOr<int> ResumeJob(const CommandLine& line, Terminal& terminal);         // query.cc
absl::StatusOr<int> SqueezeJob(const CommandLine& line, Terminal& terminal);        // query.cc
absl::StatusOr<int> RelaxJob(const CommandLine& line, Terminal& terminal);          // query.cc
absl::StatusOr<int> WatchJob(const CommandLine& line, Terminal& terminal);          // watch.cc
absl::StatusOr<int> PrintLogs(const CommandLine& line, Terminal& terminal);         // logs.cc
absl::StatusOr<int> DownloadJob(const CommandLine& line, Terminal& terminal);       // download.cc
absl::StatusOr<int> ListArtifacts(const CommandLine& line, Terminal& terminal);     // download.cc
absl::StatusOr<int> ListCheckpoints(const CommandLine& line, Terminal& terminal);   // download.cc
absl::StatusOr<int> UpdateJob(const CommandLine& line, Terminal& terminal);         // change.cc
absl::StatusOr<int> RerunJobs(const CommandLine& line, Terminal& terminal);         // change.cc
absl::StatusOr<int> ExtendJob(const CommandLine& line, Terminal& terminal);         // change.cc
absl::StatusOr<int> DeleteJobs(const CommandLine& line, Terminal& terminal);        // change.cc
absl::StatusOr<int> BackUp(const CommandLine& line, Terminal& terminal);            // store.cc
absl::StatusOr<int> Examine(const CommandLine& line, Terminal& terminal);           // store.cc
absl::StatusOr<int> ManageTokens(const CommandLine& line, Terminal& terminal);      // token.cc
absl::StatusOr<int> ManageFiles(const CommandLine& line, Terminal& terminal);       // files.cc
absl::StatusOr<int> ImportForeignJob(const CommandLine& line, Terminal& terminal);  // import.cc
absl::StatusOr<int> PlotJobs(const CommandLine& line, Terminal& terminal);          // plot.cc
// In export_metrics.cc.
absl::StatusOr<int> ExportMetrics(const CommandLine& line, Terminal& terminal);
absl::StatusOr<int> PrintShellHelp(const CommandLine& line, Terminal& terminal);  // shell.cc
absl::StatusOr<int> PreviewDataset(const CommandLine& line, Terminal& terminal);  // datasets.cc
absl::StatusOr<int> SamplePrompts(const CommandLine& line, Terminal& terminal);   // sample.cc
absl::StatusOr<int> ChatWithJob(const CommandLine& line, Terminal& terminal);     // chat.cc

// What WatchJob does, on a connection that there is already.
absl::StatusOr<int> Watch(Connection& connection, const CommandLine& line, Terminal& terminal);

}  // namespace snug::client

#endif  // CLIENT_COMMANDS_H_
