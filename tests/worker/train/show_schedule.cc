// show_schedule STEPS < job specs, a proto JSON per line: the learning rate of each step, a line
// per spec, as hexadecimal floats (no digit is lost). A tool of schedule_with_transformers_test.py.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "worker/link/assignment.h"
#include "worker/train/schedule.h"

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  const int64_t steps = std::atoll(argv[1]);
  for (std::string line; std::getline(std::cin, line);) {
    const auto spec = snug::link::ParseSpecJson(line);
    if (!spec.ok()) {
      std::cerr << spec.status() << "\n";
      return 1;
    }
    for (int64_t step = 0; step < steps; ++step)
      std::printf("%a ", snug::train::LearningRate(spec->training, step, steps));
    std::printf("\n");
  }
  return 0;
}
