#include "worker/weights/parameters.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/philox.h"
#include "kernels/rows.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/host_copy.h"
#include "worker/execute/torch_errors.h"
#include "worker/program/files/adapter_config.h"
#include "worker/program/files/packed_tensors.h"
#include "worker/program/quantization.h"
#include "worker/weights/packed_weight.h"
#include "worker/weights/random_ops.h"

namespace snug::weights {
namespace {

using execute::Device;
using execute::View;
using program::DType;
using program::Parameter;
using program::TensorEntry;

constexpr int kWords = 4;  // Per Philox block.

// Of a tensor that is converted from where its elements are not aligned: small beside any model,
// and large enough that the calls do not count.
constexpr int64_t kPieceElements = 1 << 15;

absl::StatusOr<at::ScalarType> TypeOf(const TensorEntry& entry) {
  if (entry.dtype == "F32") return at::kFloat;
  if (entry.dtype == "BF16") return at::kBFloat16;
  if (entry.dtype == "F16") return at::kHalf;
  if (entry.dtype == "F64") return at::kDouble;
  return absl::InvalidArgumentError(
      absl::StrCat(entry.file, ": number type ", entry.dtype, " is none of F32, BF16, F16, F64"));
}

bool SameType(const std::string& file, DType dtype) {
  return file == (dtype == DType::kF32 ? "F32" : "BF16");
}

bool IsAligned(const char* bytes, int64_t element_bytes) {
  return reinterpret_cast<uintptr_t>(bytes) % static_cast<uintptr_t>(element_bytes) == 0;
}

// A vector is one row.
View Shaped(void* data, const Parameter& parameter, DType dtype) {
  const int64_t rows = parameter.shape.size() > 1 ? parameter.shape[0] : 1;
  return {data, rows, parameter.elements() / rows, dtype};
}

// Number `which` of two independent normal ones from two in [0, 1) (Box and Muller 1958).
float Normal(float first, float second, int64_t which) {
  const float radius = std::sqrt(-2.0f * std::log(1.0f - first));
  const float angle = 2.0f * std::numbers::pi_v<float> * second;
  return radius * (which == 0 ? std::cos(angle) : std::sin(angle));
}

// Elements of fp32 from pairs of numbers in [0, 1): number(first, second, which of the pair).
template <typename Number>
absl::Status FillDrawn(Device& device, const View& to, const kernels::RandomSite& site,
                       const Number& number) {
  return execute::FillRows(device, to, [&](const View& rows, int64_t first) {
    const int64_t begin = first * to.width;
    for (int64_t i = begin; i < begin + rows.elements(); ++i) {
      const kernels::Random4 words = kernels::RandomBlock(site, static_cast<uint64_t>(i) / kWords);
      const int64_t pair = i % kWords / 2 * 2;
      rows.as<float>()[i - begin] =
          number(kernels::ToUniform(words.word[pair]), kernels::ToUniform(words.word[pair + 1]),
                 i % kWords - pair);
    }
  });
}

// Half of a new adapter as PEFT draws it. lora_A: Kaiming uniform with a = sqrt(5), which is
// uniform in +-1/sqrt(in); lora_B: zero. Of an embedding A is zero, and B normal.
absl::Status DrawAdapter(Device& device, const View& to, std::string_view key,
                         const kernels::RandomSite& site) {
  if (key.ends_with(".lora_B.weight") || key.ends_with(".lora_embedding_A"))
    return execute::FillMemory(device, to.data, 0, to.bytes());
  const bool normal = key.ends_with(".lora_embedding_B");
  const float bound = 1.0f / std::sqrt(static_cast<float>(to.width));
  return FillDrawn(device, to, site, [&](float first, float second, int64_t which) {
    if (normal) return Normal(first, second, which);
    return (2.0f * (which == 0 ? first : second) - 1.0f) * bound;
  });
}

// What is drawn where no file has it, from `site`: half of a new adapter, or a new head, which
// transformers draws from a normal distribution around 0.
absl::Status Draw(Device& device, const View& to, const Parameter& parameter, double head_spread,
                  const kernels::RandomSite& site) {
  if (parameter.adapter) return DrawAdapter(device, to, parameter.key, site);
  if (parameter.shape.size() == 1)  // A bias.
    return execute::FillMemory(device, to.data, 0, to.bytes());
  const auto spread = static_cast<float>(head_spread);
  return FillDrawn(device, to, site, [spread](float first, float second, int64_t which) {
    return spread * Normal(first, second, which);
  });
}

// Rows from `first` on become the mean of those before, which is summed in double, so that a token
// that was never seen is an average one. transformers (5.23, resize_token_embeddings) draws such
// rows around that mean with 1e-9 of the covariance; here nothing is drawn.
absl::Status FillAddedRows(Device& device, const View& table, int64_t first) {
  const int64_t width = table.width;
  std::vector<double> mean(static_cast<size_t>(width));
  RETURN_IF_ERROR(
      execute::ReadRows(device, table.Rows(0, first), [&](const View& rows, int64_t /*first*/) {
        for (int64_t i = 0; i < rows.elements(); ++i)
          mean[static_cast<size_t>(i % width)] += rows.as<float>()[i];
      }));
  for (double& sum : mean) sum /= static_cast<double>(first);
  return execute::FillRows(
      device, table.Rows(first, table.rows - first), [&](const View& rows, int64_t /*first*/) {
        for (int64_t i = 0; i < rows.elements(); ++i)
          rows.as<float>()[i] = static_cast<float>(mean[static_cast<size_t>(i % width)]);
      });
}

// A file may place a tensor at any byte; ATen reads elements only where they belong, so others go
// there first, piece by piece. Throws what LibTorch throws.
void Convert(const char* bytes, at::ScalarType type, const View& to) {
  const c10::InferenceMode no_autograd;
  const auto size = static_cast<int64_t>(at::elementSize(type));
  const at::ScalarType computed = to.dtype == DType::kF32 ? at::kFloat : at::kBFloat16;
  const at::Tensor all = at::from_blob(to.data, {to.elements()}, computed);
  if (IsAligned(bytes, size)) {
    all.copy_(at::from_blob(const_cast<char*>(bytes), {to.elements()}, type));
    return;
  }
  std::vector<char> piece(static_cast<size_t>(kPieceElements * size));
  for (int64_t begin = 0; begin < to.elements(); begin += kPieceElements) {
    const int64_t count = std::min(kPieceElements, to.elements() - begin);
    std::memcpy(piece.data(), bytes + begin * size, static_cast<size_t>(count * size));
    all.slice(0, begin, begin + count).copy_(at::from_blob(piece.data(), {count}, type));
  }
}

// Null: to be drawn. What an adapter trained whole it may bring along.
const TensorEntry* EntryOf(const program::ModelConfig& config, const Parameter& parameter,
                           const program::TensorIndex& model, const program::TensorIndex& adapter) {
  if (InAdapterFile(parameter)) {
    const auto brought = adapter.find(AdapterFileKey(parameter));
    if (brought != adapter.end()) return &brought->second;
  }
  if (ReplacesHead(config, parameter)) return nullptr;
  const auto found = model.find(parameter.key);
  return found == model.end() ? nullptr : &found->second;
}

absl::StatusOr<program::TensorIndex> AdapterIndex(const program::Program& program,
                                                  const std::string& folder) {
  if (folder.empty()) return program::TensorIndex{};
  return program::ReadAdapterIndex(program, folder);
}

// Of a checkpoint: each tensor is one of the program's, of its shape.
absl::StatusOr<program::TensorIndex> SavedIndex(const program::Program& program,
                                                const std::string& file) {
  if (file.empty()) return program::TensorIndex{};
  ASSIGN_OR_RETURN(program::TensorIndex saved, program::ReadSafetensorsHeader(file));
  size_t found = 0;
  for (const Parameter& parameter : program.parameters) {
    const auto entry = saved.find(parameter.key);
    if (entry == saved.end()) continue;
    ++found;
    if (entry->second.shape != parameter.shape)
      return absl::DataLossError(
          absl::StrCat(file, ": ", parameter.key, " has another shape than the model"));
  }
  if (found == saved.size() && found > 0) return saved;
  return absl::DataLossError(absl::StrCat(file, ": its tensors are not those of the model"));
}

}  // namespace

absl::StatusOr<Parameters> Parameters::Load(const program::Program& program,
                                            const LoadOptions& options, Device& device) {
  ASSIGN_OR_RETURN(const program::TensorIndex model,
                   program::ReadModelIndex(options.model_dir, program.config));
  RETURN_IF_ERROR(program::CheckBaseWeights(program, model));
  ASSIGN_OR_RETURN(const program::TensorIndex adapter, AdapterIndex(program, options.init_adapter));
  ASSIGN_OR_RETURN(const program::TensorIndex saved, SavedIndex(program, options.saved_weights));
  Parameters result(device);
  std::set<std::string> used_files;  // Those in which a parameter's value lies.
  RETURN_IF_ERROR(result.CheckTiedHead(program, model, ""));
  RETURN_IF_ERROR(result.CheckTiedHead(program, adapter, program::kAdapterPrefix));
  if (!options.shared_file.empty() && device.host_reads_memory())
    RETURN_IF_ERROR(result.OpenShared(program, model, options.shared_file));
  for (const Parameter& parameter : program.parameters) {
    const auto position = static_cast<uint32_t>(result.views_.size());
    result.views_.emplace_back();
    result.masters_.emplace_back();
    const auto in_checkpoint = saved.find(parameter.key);
    const TensorEntry* entry = in_checkpoint != saved.end()
                                   ? &in_checkpoint->second
                                   : EntryOf(program.config, parameter, model, adapter);
    const bool drawn =
        parameter.adapter || (IsDrawn(program.config, parameter) && parameter.trainable);
    if (entry == nullptr && !drawn)
      return absl::InternalError(absl::StrCat("no tensor for ", parameter.key));
    ASSIGN_OR_RETURN(const bool mapped, result.Place(parameter, entry));
    if (mapped) used_files.insert(entry->file);
    if (parameter.trainable && !parameter.released) RETURN_IF_ERROR(result.AddGradient(parameter));
    if (program::HasMaster(parameter))
      RETURN_IF_ERROR(result.AddMaster(parameter, entry, OptimizerPlace(program)));
    if (entry == nullptr && !parameter.trainable) {  // An adapter that adds nothing.
      const View& none = result.views_.back().value;
      RETURN_IF_ERROR(execute::FillMemory(device, none.data, 0, none.bytes()));
    } else if (entry == nullptr) {
      RETURN_IF_ERROR(Draw(device, result.exact(position), parameter, program.config.head_spread,
                           {.seed = options.seed, .step = position, .op = kAdapterInitOp}));
    }
    const bool of_base =
        entry != nullptr && model.contains(parameter.key) && &model.at(parameter.key) == entry;
    if (program.config.adds_tokens() && program::IsTable(parameter) && of_base) {
      RETURN_IF_ERROR(FillAddedRows(device, result.exact(position), program.config.first_added));
    }
  }
  RETURN_IF_ERROR(result.RoundMasters());
  RETURN_IF_ERROR(result.ZeroGradients());
  RETURN_IF_ERROR(result.shared_.Publish());
  // What was only copied from need not stay mapped.
  std::erase_if(result.files_, [&](const auto& file) { return !used_files.contains(file.first); });
  RETURN_IF_ERROR(device.Synchronize());
  return result;
}

// Training ties what config.json ties: were the head another matrix, it would be dropped unsaid.
absl::Status Parameters::CheckTiedHead(const program::Program& program,
                                       const program::TensorIndex& index,
                                       const std::string& prefix) {
  for (const std::string& alias : program::EmbeddingAliasesOf(program.config))
    RETURN_IF_ERROR(CheckAlias(program.config, index, prefix, alias));
  return absl::OkStatus();
}

absl::Status Parameters::CheckAlias(const program::ModelConfig& config,
                                    const program::TensorIndex& index, const std::string& prefix,
                                    const std::string& alias) {
  const auto other = index.find(prefix + alias);
  if (other == index.end()) return absl::OkStatus();
  // CheckWeights or CheckAdapter found it.
  const std::string key = program::EmbeddingKeyOf(config);
  const TensorEntry& embedding = index.at(prefix + key);
  ASSIGN_OR_RETURN(const char* other_bytes, Mapped(other->second));
  ASSIGN_OR_RETURN(const char* embedding_bytes, Mapped(embedding));
  const bool same =
      other->second.bytes == embedding.bytes &&
      std::memcmp(other_bytes, embedding_bytes, static_cast<size_t>(embedding.bytes)) == 0;
  for (const TensorEntry* read : {&other->second, &embedding})
    files_.at(read->file).Release(read->begin, read->bytes);
  if (same) return absl::OkStatus();
  const char* advice = alias == program::kHeadKey
                           ? ", but config.json ties them: set tie_word_embeddings to false to "
                             "train both, or leave "
                           : ", but they are one matrix: leave ";
  return absl::InvalidArgumentError(
      absl::StrCat(other->second.file, ": ", alias, " differs from ", key, advice, alias, " out"));
}

absl::Status Parameters::OpenShared(const program::Program& program,
                                    const program::TensorIndex& model, const std::string& path) {
  int64_t bytes = 0;
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    const Parameter& parameter = program.parameters[i];
    const auto entry = model.find(parameter.key);
    if (!program::IsFrozen(parameter) || entry == model.end()) continue;
    ASSIGN_OR_RETURN(const bool as_needed, IsAsNeeded(parameter, &entry->second));
    if (as_needed) continue;
    shared_places_[i] = bytes;
    bytes += program::Aligned(program::ValueBytes(parameter));
  }
  if (bytes == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(shared_, SharedFile::Open(path, bytes));
  return absl::OkStatus();
}

char* Parameters::SharedPlace() const {
  const auto place = shared_places_.find(views_.size() - 1);
  return place == shared_places_.end() ? nullptr : shared_.data() + place->second;
}

absl::StatusOr<bool> Parameters::IsAsNeeded(const Parameter& parameter, const TensorEntry* entry) {
  const bool same = device_->host_reads_memory() && entry != nullptr && !parameter.trainable &&
                    parameter.quantization == program::Quantization::kNone &&
                    SameType(entry->dtype, parameter.dtype);
  if (!same) return false;
  ASSIGN_OR_RETURN(const char* bytes, Mapped(*entry));
  return IsAligned(bytes, SizeOf(parameter.dtype));
}

absl::StatusOr<bool> Parameters::Place(const Parameter& parameter, const TensorEntry* entry) {
  View& value = views_.back().value;
  if (parameter.quantization != program::Quantization::kNone) {
    RETURN_IF_ERROR(PlaceQuantized(parameter, *entry));
    return false;
  }
  ASSIGN_OR_RETURN(const bool as_needed, IsAsNeeded(parameter, entry));
  if (as_needed) {
    ASSIGN_OR_RETURN(const char* bytes, Mapped(*entry));
    value = Shaped(const_cast<char*>(bytes), parameter, parameter.dtype);
    mapped_bytes_ += execute::CountedBytes(parameter.bytes());
    return true;
  }
  if (char* place = SharedPlace()) {
    value = Shaped(place, parameter, parameter.dtype);
    mapped_bytes_ += execute::CountedBytes(parameter.bytes());
    if (shared_.to_fill()) RETURN_IF_ERROR(ReadInto(*entry, value));
    return false;
  }
  ASSIGN_OR_RETURN(value, OwnBuffer(parameter, parameter.dtype));
  // A value with a master is rounded from it.
  const bool read = entry != nullptr && !program::HasMaster(parameter);
  if (read) RETURN_IF_ERROR(ReadInto(*entry, value));
  return false;
}

absl::Status Parameters::PlaceQuantized(const Parameter& parameter, const TensorEntry& entry) {
  char* place = SharedPlace();
  ASSIGN_OR_RETURN(QuantizedWeight made, place == nullptr
                                             ? QuantizedWeight::Allocate(*device_, parameter)
                                             : QuantizedWeight::At(parameter, place));
  if (place != nullptr) mapped_bytes_ += made.counted_bytes();
  if (place == nullptr || shared_.to_fill()) RETURN_IF_ERROR(Quantise(parameter, entry, made));
  auto& kept = quantized_[views_.size() - 1];
  kept = std::make_unique<QuantizedWeight>(std::move(made));
  View& value = views_.back().value;
  value = Shaped(kept->data(), parameter, parameter.dtype);
  value.quantized = &kept->weight();
  return absl::OkStatus();
}

// From the file's codes, or from its elements in the type that is computed with, as a model that
// was loaded in it would be quantised.
absl::Status Parameters::Quantise(const Parameter& parameter, const TensorEntry& entry,
                                  const QuantizedWeight& to) {
  if (entry.packed != nullptr) {
    const auto bytes_of = [this](const TensorEntry& part) { return Mapped(part); };
    RETURN_IF_ERROR(FillFromCodes(*device_, parameter, entry, to, bytes_of));
    const std::optional<TensorEntry>& scales = entry.packed->scales;
    for (const TensorEntry* part : {&entry, &entry.packed->absmax, scales ? &*scales : nullptr})
      if (part != nullptr) files_.at(part->file).Release(part->begin, part->bytes);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const at::ScalarType type, TypeOf(entry));
  ASSIGN_OR_RETURN(const char* bytes, Mapped(entry));
  const auto size = static_cast<int64_t>(at::elementSize(type));
  const auto read = [&](int64_t first, const View& piece) {
    const char* from = bytes + first * size;
    const absl::Status status = execute::CatchTorch([&] {
      if (SameType(entry.dtype, piece.dtype)) {
        std::memcpy(piece.data, from, static_cast<size_t>(piece.bytes()));
      } else {
        Convert(from, type, piece);
      }
    });
    files_.at(entry.file).Release(entry.begin + first * size, piece.elements() * size);
    return status;
  };
  return to.Fill(*device_, parameter, read);
}

absl::Status Parameters::AddGradient(const Parameter& parameter) {
  ASSIGN_OR_RETURN(views_.back().gradient, OwnBuffer(parameter, DType::kF32));
  return absl::OkStatus();
}

// With the file's own digits, where it has more than bf16. Without a file it is drawn.
absl::Status Parameters::AddMaster(const Parameter& parameter, const TensorEntry* entry,
                                   execute::StatePlace place) {
  ASSIGN_OR_RETURN(masters_.back(), OwnBuffer(parameter, DType::kF32, place));
  return entry == nullptr ? absl::OkStatus() : ReadInto(*entry, masters_.back());
}

absl::StatusOr<View> Parameters::OwnBuffer(const Parameter& parameter, DType dtype,
                                           execute::StatePlace place) {
  ASSIGN_OR_RETURN(execute::StateBuffer buffer,
                   execute::StateBuffer::Allocate(
                       *device_, parameter.elements() * program::SizeOf(dtype), place));
  buffers_.push_back(std::move(buffer));
  return Shaped(buffers_.back().data(), parameter, dtype);
}

absl::StatusOr<const char*> Parameters::Mapped(const TensorEntry& entry) {
  auto found = files_.find(entry.file);
  if (found == files_.end()) {
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(entry.file));
    found = files_.emplace(entry.file, std::move(file)).first;
  }
  if (entry.begin + entry.bytes > found->second.bytes()) {
    return absl::DataLossError(
        absl::StrCat(entry.file, " has become shorter than its header says"));
  }
  return found->second.data() + entry.begin;
}

// Of a table that has grown, the rows that the file has. What was copied is given back piece by
// piece: its pages would be a second copy.
absl::Status Parameters::ReadInto(const TensorEntry& entry, const View& all) {
  const bool fewer = entry.shape.size() > 1 && entry.shape[0] < all.rows;
  const View to = fewer ? all.Rows(0, entry.shape[0]) : all;
  ASSIGN_OR_RETURN(const at::ScalarType type, TypeOf(entry));
  ASSIGN_OR_RETURN(const char* bytes, Mapped(entry));
  const int64_t row_bytes = to.width * static_cast<int64_t>(at::elementSize(type));
  const int64_t at_once = std::max<int64_t>(1, execute::kHostPieceBytes / row_bytes);
  for (int64_t first = 0; first < to.rows; first += at_once) {
    const View part = to.Rows(first, std::min(at_once, to.rows - first));
    const char* from = bytes + first * row_bytes;
    if (SameType(entry.dtype, to.dtype)) {
      RETURN_IF_ERROR(execute::CopyMemory(*device_, from, part.bytes(), part.data));
    } else {
      RETURN_IF_ERROR(execute::FillRows(*device_, part, [&](const View& rows, int64_t row) {
        Convert(from + row * row_bytes, type, rows);
      }));
    }
    files_.at(entry.file).Release(entry.begin + first * row_bytes, part.rows * row_bytes);
  }
  return absl::OkStatus();
}

const View& Parameters::exact(size_t index) const {
  return masters_[index] ? masters_[index] : views_[index].value;
}

ParameterBytes Parameters::held(const program::Program& program) const {
  ParameterBytes held;
  for (size_t i = 0; i < views_.size(); ++i) {
    int64_t& values = program.parameters[i].adapter ? held.adapter : held.base;
    const auto quantized = quantized_.find(i);
    values += quantized == quantized_.end() ? execute::CountedBytes(views_[i].value.bytes())
                                            : quantized->second->counted_bytes();
    held.gradients += execute::CountedBytes(views_[i].gradient.bytes());
    held.masters += execute::CountedBytes(masters_[i].bytes());
  }
  return held;
}

absl::Status Parameters::RoundMasters() {
  for (size_t i = 0; i < masters_.size(); ++i) {
    if (!masters_[i]) continue;
    const View &from = masters_[i], &to = views_[i].value;
    RETURN_IF_ERROR(
        execute::KernelStatus("CastRows", kernels::CastRows({.x = from.data,
                                                             .y = to.data,
                                                             .N = from.rows,
                                                             .C = from.width,
                                                             .x_stride = from.width,
                                                             .y_stride = from.width,
                                                             .x_dtype = kernels::DType::kF32,
                                                             .y_dtype = kernels::DType::kBF16},
                                                            device_->stream(0))));
  }
  return absl::OkStatus();
}

absl::Status Parameters::ZeroGradients() const {
  for (const execute::ParameterView& view : views_) {
    if (!view.gradient) continue;
    RETURN_IF_ERROR(execute::FillMemory(*device_, view.gradient.data, 0, view.gradient.bytes()));
  }
  return absl::OkStatus();
}

absl::Status Parameters::ReadTrained(const program::Program& program,
                                     const program::TensorIndex& index) {
  constexpr int kNan = 0xFF;  // Of every byte: NaN in fp32 and in bf16.
  for (size_t i = 0; i < views_.size(); ++i) {
    const Parameter& parameter = program.parameters[i];
    if (!parameter.trainable) continue;
    const View& value = views_[i].value;
    RETURN_IF_ERROR(execute::FillMemory(*device_, value.data, kNan, value.bytes()));
    const auto found =
        index.find(InAdapterFile(parameter) ? AdapterFileKey(parameter) : parameter.key);
    if (found == index.end() || found->second.shape != parameter.shape) {
      return absl::DataLossError(absl::StrCat(parameter.key, " is missing, or has another shape"));
    }
    RETURN_IF_ERROR(ReadInto(found->second, value));
  }
  return absl::OkStatus();
}

}  // namespace snug::weights
