#include "worker/program/released_gradients.h"

#include <cstddef>
#include <vector>

namespace snug::program {

void ReleaseGradients(Program& program) {
  std::vector<int> readers(program.parameters.size());
  for (const Block& block : program.blocks)
    for (const int parameter : block.parameters) ++readers[static_cast<size_t>(parameter)];
  for (size_t p = 0; p < readers.size(); ++p)
    program.parameters[p].released = program.parameters[p].trainable && readers[p] == 1;
}

}  // namespace snug::program
