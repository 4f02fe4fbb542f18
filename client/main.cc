// snug: submit, plan and watch fine-tuning jobs.
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "client/run.h"

int main(int argc, char** argv) {
  snug::client::Terminal terminal{.out = std::cout, .err = std::cerr};
  terminal.is_tty = isatty(STDOUT_FILENO) == 1;
  return snug::client::Run(std::vector<std::string>(argv + 1, argv + argc), terminal);
}
