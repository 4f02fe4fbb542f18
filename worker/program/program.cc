#include "worker/program/program.h"

#include <algorithm>

namespace snug::program {

bool SavesEmbedding(const Program& program) {
  return std::any_of(program.parameters.begin(), program.parameters.end(),
                     [](const Parameter& p) { return p.key == kEmbeddingKey && p.saved; });
}

}  // namespace snug::program
