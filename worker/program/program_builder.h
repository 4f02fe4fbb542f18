// Binds block types to layers and collects the program's parameters, each key once.
#ifndef WORKER_PROGRAM_PROGRAM_BUILDER_H_
#define WORKER_PROGRAM_PROGRAM_BUILDER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/program/block_builder.h"
#include "worker/program/program.h"

namespace snug::program {

// "model.norm.weight" -> "model.norm".
std::string ModulePath(const std::string& key);

// PEFT trains a classification head whole, whatever it is asked for (task_type SEQ_CLS): an adapter
// must name it.
absl::Status CheckHeadIsSaved(const ModelConfig& config, const LoraTargets& targets);

class ProgramBuilder {
 public:
  ProgramBuilder(const ModelConfig& config, const TrainingMode& mode, LoraTargets targets);

  const LoraTargets& targets() const { return targets_; }

  // The type's number.
  int AddType(BlockBuilder& builder);
  // A block that reads these borders; `layer` -1: outside the layers. Gives the borders of its
  // outputs.
  std::vector<int> AddBlock(int type, int layer, std::vector<int> inputs);

  Program Take();

 private:
  int Bind(const ParameterSlot& slot, int layer);

  const TrainingMode& mode_;
  const LoraTargets targets_;
  Program program_;
  std::vector<std::vector<ParameterSlot>> slots_;  // By type.
  std::map<std::string, int> index_;               // Of parameters, by key.
};

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PROGRAM_BUILDER_H_
