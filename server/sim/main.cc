// snug-sim: how jobs would share devices.
#include <iostream>

#include "server/sim/command.h"

int main(int argc, char** argv) {
  return snug::server::sim::RunCommand(argc, argv, std::cout, std::cerr);
}
