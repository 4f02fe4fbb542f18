// The daemon's settings: defaults, then the configuration file, then the command line; the later
// wins.
#ifndef SERVER_CONFIG_H_
#define SERVER_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "snug/v1/config.pb.h"

namespace snug::server {

// Of /metrics, where none is named.
inline constexpr int kDefaultMetricsPort = 9464;

// Where the socket is for a user without a folder of its own for such things. Anybody may have made
// a folder of that name first: it is used only if it is this user's alone.
std::string SharedSocketFolder();

// Every field is set but metrics_port, which only the user sets. OUT_OF_RANGE: nothing to run, the
// text (help, version) is to be printed.
absl::StatusOr<v1::DaemonConfig> ConfigFromCommandLine(int argc, char** argv);

// The script of snug-prepare: $SNUG_PREPARE, else the one that is installed with this
// binary, or of the tree that it was built in.
std::string PrepareScript();

// The socket of snug-launch: $SNUG_LAUNCHER, which the daemon's unit sets; empty: there is none,
// and the daemon starts attempts itself.
std::string LauncherSocket();

}  // namespace snug::server

#endif  // SERVER_CONFIG_H_
