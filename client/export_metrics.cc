// export-metrics: jobs' metrics for a tool that draws them. Each tool's own library writes its
// files, and these libraries are Python's: the work is that of snug-export-metrics, in the package
// snug-client.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/commands.h"

namespace snug::client {
namespace {

constexpr const char* kProgram = "snug-export-metrics";

// What the program has no options for it takes from where the client does, too.
absl::Status SetEnvironment(const Server& server) {
  if (!server.tls_cert.empty())
    return absl::InvalidArgumentError("export-metrics shows a token, and no certificate");
  if (!server.tls_ca.empty()) setenv("SNUG_TLS_CA", server.tls_ca.c_str(), /*overwrite=*/1);
  if (server.token_file.empty()) return absl::OkStatus();
  std::string token;
  if (!std::getline(std::ifstream(server.token_file), token))
    return absl::NotFoundError(absl::StrCat("cannot read ", server.token_file));
  setenv("SNUG_TOKEN", std::string(absl::StripAsciiWhitespace(token)).c_str(), /*overwrite=*/1);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> ExportMetrics(const CommandLine& line, Terminal& terminal) {
  if (const absl::Status set = SetEnvironment(line.server); !set.ok()) return set;
  std::vector<std::string> words = {kProgram, "--server", line.server.name};
  words.insert(words.end(), line.jobs.begin(), line.jobs.end());
  words.push_back("--to");
  words.insert(words.end(), line.to.begin(), line.to.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  terminal.out.flush();
  execvp(kProgram, arguments.data());  // Returns when there is no such program.
  if (errno != ENOENT) return absl::ErrnoToStatus(errno, absl::StrCat("cannot run ", kProgram));
  return absl::FailedPreconditionError(
      absl::StrCat(kProgram, " is not in PATH: it is in the Python package snug-client, built by "
                   "client/python/build_wheel.py; install snug-client[", line.to.front(), "]"));
}

}  // namespace snug::client
