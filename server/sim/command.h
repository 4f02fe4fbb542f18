// snug-sim: the command line.
#ifndef SERVER_SIM_COMMAND_H_
#define SERVER_SIM_COMMAND_H_

#include <ostream>

namespace snug::server::sim {

// The exit code: 0 done, 1 an error, 64 a mistake in the command line.
int RunCommand(int argc, char** argv, std::ostream& out, std::ostream& err);

}  // namespace snug::server::sim

#endif  // SERVER_SIM_COMMAND_H_
