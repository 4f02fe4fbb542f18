#include "client/run.h"

#include <map>

#include "absl/status/statusor.h"
#include "client/commands.h"
#include "client/errors.h"
#include "client/job_file.h"
#include "client/json.h"

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

}  // namespace

int Run(std::vector<std::string> arguments, Terminal& terminal) {
  CommandLine line;
  if (std::optional<int> code = ParseCommandLine(std::move(arguments), terminal, &line))
    return *code;
  const absl::StatusOr<int> code = Commands().at(line.command)(line, terminal);
  terminal.out.flush();
  if (code.ok()) return *code;
  if (line.output == Output::kJson)
    terminal.err << JsonText(
                        ErrorToJson(code.status(), LinesOf(line.file, line.overrides)))
                 << std::flush;
  else
    terminal.err << "snug: " << code.status().message() << std::endl;
  return kExitError;
}

}  // namespace snug::client
