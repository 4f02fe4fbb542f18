// The whole of `snug`: from arguments to an exit code.
#ifndef CLIENT_RUN_H_
#define CLIENT_RUN_H_

#include <string>
#include <vector>

#include "client/command_line.h"

namespace snug::client {

int Run(std::vector<std::string> arguments, Terminal& terminal);

}  // namespace snug::client

#endif  // CLIENT_RUN_H_
