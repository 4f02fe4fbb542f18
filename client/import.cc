// import: a job file of another tool, as one of ours, on standard output.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/importer.h"
#include "client/json.h"
#include "proto/snug/status_macros.h"

namespace snug::client {

absl::StatusOr<int> ImportForeignJob(const CommandLine& line, Terminal& terminal) {
  std::ifstream stream(line.file, std::ios::binary);
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf()))
    return absl::NotFoundError(
        absl::StrCat("cannot read the job file ", line.file, ": ", std::strerror(errno)));
  ASSIGN_OR_RETURN(const std::string job, ImportJob(text.str(), line.file));
  if (line.output == Output::kJson)
    terminal.out << JsonText(Json::object({{"job_file", job}}));
  else
    terminal.out << job;
  return kExitOk;
}

}  // namespace snug::client
