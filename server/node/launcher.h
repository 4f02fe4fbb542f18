// Starts attempts on this machine, and the measurement that a node makes of its worker.
#ifndef SERVER_NODE_LAUNCHER_H_
#define SERVER_NODE_LAUNCHER_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "snug/v1/worker.pb.h"

namespace snug::server {

struct LauncherSettings {
  std::string shim;  // Paths of the programs.
  std::string worker;
  std::string state_dir;
};

// Writes the assignment and starts a shim that holds the attempt's lock from this moment on.
// Returns its pid.
absl::StatusOr<pid_t> LaunchAttempt(const LauncherSettings& settings,
                                    const v1::Assignment& assignment);

// What a node measures of its worker.
struct NodeFacts {
  int64_t context_bytes = 0;  // What its process counts for before it holds a model.
  std::string products;       // Which way of multiplying is fastest for what, in its own words.
};

// `WORKER --measure-context`, remembered in <state>/context.json for as long as binary and
// processor stay the same: attempts of one job then multiply alike.
absl::StatusOr<NodeFacts> MeasureNode(const LauncherSettings& settings);

// The kernel's id of this boot: what was started under another one is gone.
std::string BootId();

// Collects a shim that has ended, if it was a child of this process, so that no zombie stays.
void ReapShim(pid_t shim);

}  // namespace snug::server

#endif  // SERVER_NODE_LAUNCHER_H_
