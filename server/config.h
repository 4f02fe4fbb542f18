// The daemon's settings: defaults, then the configuration file, then the command line; the later
// wins.
#ifndef SERVER_CONFIG_H_
#define SERVER_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "snug/v1/config.pb.h"

namespace snug::server {

// Every field is set. OUT_OF_RANGE: nothing to run, the text (help, version) is to be printed.
absl::StatusOr<v1::DaemonConfig> ConfigFromCommandLine(int argc, char** argv);

// The script of snug-prepare: $SNUG_PREPARE, else the one that is installed with this
// binary, or of the tree that it was built in.
std::string PrepareScript();

}  // namespace snug::server

#endif  // SERVER_CONFIG_H_
