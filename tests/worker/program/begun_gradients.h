// Which gradients a tape begins: what is there before it runs is of no use to anyone, so that tests
// lay NaN there, which nobody may add to.
#ifndef TESTS_WORKER_PROGRAM_BEGUN_GRADIENTS_H_
#define TESTS_WORKER_PROGRAM_BEGUN_GRADIENTS_H_

#include <cstddef>
#include <vector>

#include "worker/program/tape.h"

namespace snug::program {

// By parameter, of so many.
inline std::vector<bool> BegunGradients(const Tape& tape, size_t parameters) {
  std::vector<bool> begun(parameters);
  for (const Instruction& line : tape.instructions) {
    for (size_t i = 0; i < line.parameters.size(); ++i) {
      if ((line.begins >> i & 1) != 0) begun[static_cast<size_t>(line.parameters[i])] = true;
    }
  }
  return begun;
}

}  // namespace snug::program

#endif  // TESTS_WORKER_PROGRAM_BEGUN_GRADIENTS_H_
