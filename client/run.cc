#include "client/run.h"

#include <map>

#include "absl/status/statusor.h"
#include "client/commands.h"
#include "client/errors.h"
#include "client/job_file.h"
#include "client/json.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

using Command = absl::StatusOr<int> (*)(const CommandLine&, Terminal&);

const std::map<std::string, Command>& Commands() {
  static const auto& commands = *new std::map<std::string, Command>{
      {"artifacts", ListArtifacts},
      {"backup", BackUp},
      {"cancel", CancelJob},
      {"chat", ChatWithJob},
      {"checkpoints", ListCheckpoints},
      {"datasets", PreviewDataset},
      {"delete", DeleteJobs},
      {"devices", ListDevices},
      {"doctor", Examine},
      {"download", DownloadJob},
      {"drain", DrainDevice},
      {"export-metrics", ExportMetrics},
      {"extend", ExtendJob},
      {"files", ManageFiles},
      {"get", GetJob},
      {"import", ImportForeignJob},
      {"list", ListJobs},
      {"logs", PrintLogs},
      {"open", OpenPage},
      {"plan", PlanJob},
      {"pause", PauseJob},
      {"resume", ResumeJob},
      {"plot", PlotJobs},
      {"relax", RelaxJob},
      {"rerun", RerunJobs},
      {"sample", SamplePrompts},
      {"shell", PrintShellHelp},
      {"squeeze", SqueezeJob},
      {"submit", SubmitJob},
      {"token", ManageTokens},
      {"top", ShowTop},
      {"undrain", UndrainDevice},
      {"update", UpdateJob},
      {"watch", WatchJob},
  };
  return commands;
}

// Whether FILE is a job file. `submit` and `plan` take nothing else, whatever its name is; for
// `datasets` the name tells.
bool ReadsJobFile(const CommandLine& line) {
  return line.command == "submit" || line.command == "plan" ||
         (line.command == "datasets" && IsJobFile(line.file));
}

// A job file is read once, here: the command needs it, and so do errors of the daemon, for lines.
// Standard input cannot be read a second time.
absl::StatusOr<int> Do(CommandLine& line, Terminal& terminal) {
  if (ReadsJobFile(line)) {
    ASSIGN_OR_RETURN(line.job_text, ReadJobFile(line.file));
  }
  return Commands().at(line.command)(line, terminal);
}

}  // namespace

int Run(std::vector<std::string> arguments, Terminal& terminal) {
  CommandLine line;
  if (std::optional<int> code = ParseCommandLine(std::move(arguments), terminal, &line))
    return *code;
  const absl::StatusOr<int> code = Do(line, terminal);
  terminal.out.flush();
  if (code.ok()) return *code;
  if (line.output == Output::kJson)
    terminal.err << JsonText(ErrorToJson(code.status(), LinesOf(line.job_text, line.overrides)))
                 << std::flush;
  else
    terminal.err << "snug: " << code.status().message() << std::endl;
  return kExitError;
}

}  // namespace snug::client
