// A program's parameters in a device's memory: gradients of trained ones in fp32. On the CPU frozen
// ones are mapped from the file where its number type is the one that is computed in and its
// elements lie where such elements belong; all others, and on a device whose memory the host does
// not read all of them, are in buffers of their own, converted. A trained parameter that is
// computed with in bf16 is the rounded copy of an fp32 master, which is what the optimizer changes.
// A quantised base has codes instead. Either way a parameter counts for program::ValueBytes, so
// that what a header says changes no prediction.
//
// What is copied or made for a device is so in pieces (execute/host_copy.h): neither the host's
// memory nor the pages of a file hold a tensor a second time.
#ifndef WORKER_WEIGHTS_PARAMETERS_H_
#define WORKER_WEIGHTS_PARAMETERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/execute/device.h"
#include "worker/execute/state_buffer.h"
#include "worker/execute/view.h"
#include "worker/program/files/safetensors.h"
#include "worker/program/program.h"
#include "worker/weights/mapped_file.h"
#include "worker/weights/quantized_weight.h"
#include "worker/weights/shared_file.h"

namespace snug::weights {

struct LoadOptions {
  std::string model_dir;
  // A PEFT directory; empty: A drawn as PEFT draws it, B zero. Of a program that trains nothing
  // both are zero then.
  std::string init_adapter;
  // A checkpoint's file of weights, by the program's keys, which come before the model's and the
  // adapter's; or empty.
  std::string saved_weights = {};
  uint64_t seed = 0;  // Of what is drawn.
  // Where frozen weights lie that the model's files do not have as they are needed, and that other
  // processes have in common with this one: named by what they are. Empty: nowhere.
  std::string shared_file = {};
};

// Of a device, or mapped where it reads files: each tensor as its allocator would count it.
struct ParameterBytes {
  int64_t base = 0, adapter = 0, gradients = 0;
  int64_t masters = 0;  // Wherever they lie.
};

// Where masters and moments lie.
inline execute::StatePlace OptimizerPlace(const program::Program& program) {
  return program.optimizer_on_host ? execute::StatePlace::kHost : execute::StatePlace::kDevice;
}

class Parameters {
 public:
  static absl::StatusOr<Parameters> Load(const program::Program& program,
                                         const LoadOptions& options, execute::Device& device);

  // By index of Program::parameters.
  std::span<const execute::ParameterView> views() const { return views_; }
  // What the optimizer changes and a checkpoint holds of a trained parameter, fp32: its master, or
  // the value itself.
  const execute::View& exact(size_t index) const;
  // Makes the values of parameters with a master from it, after the masters have been filled.
  absl::Status RoundMasters();
  // Counted like the prediction does: each tensor rounded up to kAlignment. Of the host's memory.
  int64_t mapped_bytes() const { return mapped_bytes_; }
  ParameterBytes held(const program::Program& program) const;

  // Forgets the trained parameters and fills them from `index`, where each must be: an adapter's
  // file or a whole model's. For verifying an export.
  absl::Status ReadTrained(const program::Program& program, const program::TensorIndex& index);

 private:
  // Once: those that no backward gives, as of a pooler that nobody reads, stay zeros.
  absl::Status ZeroGradients() const;
  explicit Parameters(execute::Device& device) : device_(&device) {}

  // Where each frozen parameter that no file has as it is needed lies in the shared file.
  absl::Status OpenShared(const program::Program& program, const program::TensorIndex& model,
                          const std::string& path);
  // Whether the value can be the entry's own bytes.
  absl::StatusOr<bool> IsAsNeeded(const program::Parameter& parameter,
                                  const program::TensorEntry* entry);
  // The parameter's place in the shared file; null: it has none.
  char* SharedPlace() const;
  // Of the base's files or, by `prefix`, an adapter's.
  absl::Status CheckTiedHead(const program::Program& program, const program::TensorIndex& index,
                             const std::string& prefix);
  absl::Status CheckAlias(const program::ModelConfig& config, const program::TensorIndex& index,
                          const std::string& prefix, const std::string& alias);
  // Whether the value lies in the entry's file itself.
  absl::StatusOr<bool> Place(const program::Parameter& parameter,
                             const program::TensorEntry* entry);
  // Its views point to the quantised weight, so that this stays where it is.
  absl::Status PlaceQuantized(const program::Parameter& parameter,
                              const program::TensorEntry& entry);
  absl::Status Quantise(const program::Parameter& parameter, const program::TensorEntry& entry,
                        const QuantizedWeight& to);
  absl::Status AddGradient(const program::Parameter& parameter);
  absl::Status AddMaster(const program::Parameter& parameter, const program::TensorEntry* entry,
                         execute::StatePlace place);
  absl::StatusOr<execute::View> OwnBuffer(const program::Parameter& parameter, program::DType dtype,
                                          execute::StatePlace place = execute::StatePlace::kDevice);
  absl::StatusOr<const char*> Mapped(const program::TensorEntry& entry);
  absl::Status ReadInto(const program::TensorEntry& entry, const execute::View& all);

  execute::Device* device_;
  std::vector<execute::ParameterView> views_;
  std::vector<execute::View> masters_;  // By parameter; absent where there is none.
  std::vector<execute::StateBuffer> buffers_;
  std::map<size_t, std::unique_ptr<QuantizedWeight>> quantized_;  // By parameter.
  std::map<std::string, MappedFile> files_;
  int64_t mapped_bytes_ = 0;
  SharedFile shared_;
  std::map<size_t, int64_t> shared_places_;  // By parameter, an offset.
};

}  // namespace snug::weights

#endif  // WORKER_WEIGHTS_PARAMETERS_H_
