// The header of safetensors files, read without the data. Rules of the format enforced before
// anything is allocated: see the .cc.
#ifndef WORKER_PROGRAM_FILES_SAFETENSORS_H_
#define WORKER_PROGRAM_FILES_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/program/program.h"

namespace snug::program {

struct PackedTensor;

struct TensorEntry {
  std::string dtype;  // As the file spells it: "F32", "BF16", "I64".
  std::vector<int64_t> shape;
  std::string file;   // Full path.
  int64_t begin = 0;  // Bytes from the file's start.
  int64_t bytes = 0;
  // Of a matrix in codes: what belongs to them (packed_tensors.h). Null: the elements lie there.
  std::shared_ptr<const PackedTensor> packed = nullptr;
};

using TensorIndex = std::map<std::string, TensorEntry>;

absl::StatusOr<TensorIndex> ReadSafetensorsHeader(const std::string& path);

// model.safetensors, or the shards that model.safetensors.index.json names.
absl::StatusOr<TensorIndex> ReadModelIndex(const std::string& model_dir);

// The same, with matrices in codes as one entry each, and by the names of a model with a head: an
// encoder's files without one ("BertModel") leave out the name of the module that is not the head
// ("bert."), as transformers saves them.
absl::StatusOr<TensorIndex> ReadModelIndex(const std::string& model_dir, const ModelConfig& config);

// Every base parameter is there with its shape and a float dtype, or in the codes that it is held
// in where the files have codes, and nothing else is (buffers that transformers once saved, such as
// rotary_emb.inv_freq, are allowed, and other names for the embedding, such as lm_head.weight of a
// tied model: of its shape and dtype; that their values are the embedding's only who reads them can
// check). Errors name the tensors: missing, extra, wrong shape.
absl::Status CheckWeights(const Program& program, const TensorIndex& index);

// The same of the files that training starts from, which lack the rows of added tokens.
absl::Status CheckBaseWeights(const Program& program, const TensorIndex& index);

// The same for an adapter directory's adapter_model.safetensors against the adapter's parameters.
absl::Status CheckAdapter(const Program& program, const TensorIndex& index);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_FILES_SAFETENSORS_H_
