#include "worker/weights/parameters.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/philox.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/tensor_view.h"
#include "worker/execute/torch_errors.h"

namespace snug::weights {
namespace {

using execute::View;
using program::DType;
using program::Parameter;
using program::TensorEntry;

// Draws of a new adapter share the seed with dropout and shuffling, but no site: those count ops
// from 0, shuffling takes the last.
constexpr uint32_t kAdapterInitOp = kernels::kMaxRandomOps - 2;
constexpr int kWords = 4;  // Per Philox block.

std::optional<at::ScalarType> ScalarTypeOf(const std::string& dtype) {
  if (dtype == "F32") return at::kFloat;
  if (dtype == "BF16") return at::kBFloat16;
  if (dtype == "F16") return at::kHalf;
  if (dtype == "F64") return at::kDouble;
  return std::nullopt;
}

bool SameType(const std::string& file, DType dtype) {
  return file == (dtype == DType::kF32 ? "F32" : "BF16");
}

int64_t Aligned(int64_t bytes) {
  return (bytes + program::kAlignment - 1) / program::kAlignment * program::kAlignment;
}

// A vector is one row.
View Shaped(void* data, const Parameter& parameter, DType dtype) {
  const int64_t rows = parameter.shape.size() > 1 ? parameter.shape[0] : 1;
  return {data, rows, parameter.elements() / rows, dtype};
}

// lora_A as PEFT: Kaiming uniform with a = sqrt(5), which is uniform in +-1/sqrt(in). lora_B: zero.
void DrawAdapter(const View& to, bool up, uint64_t seed, uint32_t index) {
  auto* values = to.as<float>();
  if (up) {
    std::memset(values, 0, static_cast<size_t>(to.bytes()));
    return;
  }
  const float bound = 1.0f / std::sqrt(static_cast<float>(to.width));
  const kernels::RandomSite site{.seed = seed, .step = index, .op = kAdapterInitOp};
  for (int64_t i = 0; i < to.elements(); ++i) {
    const kernels::Random4 words = kernels::RandomBlock(site, static_cast<uint64_t>(i) / kWords);
    values[i] = (2.0f * kernels::ToUniform(words.word[i % kWords]) - 1.0f) * bound;
  }
}

bool IsUp(const Parameter& parameter) {
  constexpr std::string_view kUp = ".lora_B.weight";
  return parameter.key.ends_with(kUp);
}

absl::StatusOr<program::TensorIndex> AdapterIndex(const program::Program& program,
                                                  const std::string& folder) {
  if (folder.empty()) return program::TensorIndex{};
  ASSIGN_OR_RETURN(program::TensorIndex index,
                   program::ReadSafetensorsHeader(folder + "/adapter_model.safetensors"));
  RETURN_IF_ERROR(program::CheckAdapter(program, index));
  return index;
}

}  // namespace

absl::StatusOr<Parameters> Parameters::Load(const program::Program& program,
                                            const LoadOptions& options, execute::Device& device) {
  ASSIGN_OR_RETURN(const program::TensorIndex model, program::ReadModelIndex(options.model_dir));
  RETURN_IF_ERROR(program::CheckWeights(program, model));
  ASSIGN_OR_RETURN(const program::TensorIndex adapter, AdapterIndex(program, options.init_adapter));
  Parameters result;
  for (const Parameter& parameter : program.parameters) {
    const program::TensorIndex& index = parameter.adapter ? adapter : model;
    const auto found = index.find(parameter.key);
    const auto position = static_cast<uint32_t>(result.views_.size());
    result.views_.emplace_back();
    RETURN_IF_ERROR(
        result.Place(parameter, found == index.end() ? nullptr : &found->second, device));
    if (found == index.end()) {
      DrawAdapter(result.views_.back().value, IsUp(parameter), options.seed, position);
    }
    if (parameter.trainable) RETURN_IF_ERROR(result.AddGradient(parameter, device));
  }
  result.ZeroGradients(device);
  return result;
}

absl::Status Parameters::Place(const Parameter& parameter, const TensorEntry* entry,
                               execute::Device& device) {
  View& value = views_.back().value;
  if (entry == nullptr && !parameter.adapter) {
    return absl::InternalError(absl::StrCat("no tensor for ", parameter.key));
  }
  const bool as_it_is =
      entry != nullptr && !parameter.trainable && SameType(entry->dtype, parameter.dtype);
  if (as_it_is) {
    ASSIGN_OR_RETURN(const char* bytes, Mapped(*entry));
    // A file may place tensors at any byte; products need elements where elements belong.
    if (reinterpret_cast<uintptr_t>(bytes) % static_cast<size_t>(SizeOf(parameter.dtype)) == 0) {
      value = Shaped(const_cast<char*>(bytes), parameter, parameter.dtype);
      mapped_bytes_ += Aligned(parameter.bytes());
      return absl::OkStatus();
    }
  }
  ASSIGN_OR_RETURN(value, OwnBuffer(parameter, parameter.dtype, device));
  return entry == nullptr ? absl::OkStatus() : ReadInto(*entry, value);
}

absl::Status Parameters::AddGradient(const Parameter& parameter, execute::Device& device) {
  ASSIGN_OR_RETURN(views_.back().gradient, OwnBuffer(parameter, DType::kF32, device));
  return absl::OkStatus();
}

absl::StatusOr<View> Parameters::OwnBuffer(const Parameter& parameter, DType dtype,
                                           execute::Device& device) {
  ASSIGN_OR_RETURN(
      execute::DeviceBuffer buffer,
      execute::DeviceBuffer::Allocate(device, parameter.elements() * program::SizeOf(dtype)));
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

absl::Status Parameters::ReadInto(const TensorEntry& entry, const View& to) {
  const std::optional<at::ScalarType> type = ScalarTypeOf(entry.dtype);
  if (!type.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(entry.file, ": number type ", entry.dtype, " is none of F32, BF16, F16, F64"));
  }
  ASSIGN_OR_RETURN(const char* bytes, Mapped(entry));
  if (SameType(entry.dtype, to.dtype)) {
    std::memcpy(to.data, bytes, static_cast<size_t>(to.bytes()));
    return absl::OkStatus();
  }
  return execute::CatchTorch([&] {
    const c10::InferenceMode no_autograd;
    execute::Matrix(to).copy_(at::from_blob(const_cast<char*>(bytes), {to.rows, to.width}, *type));
  });
}

void Parameters::ZeroGradients(execute::Device& device) const {
  for (const execute::ParameterView& view : views_) {
    if (view.gradient) device.Zero(view.gradient.data, view.gradient.bytes(), /*stream=*/0);
  }
}

absl::Status Parameters::ReadTrained(const program::Program& program,
                                     const program::TensorIndex& index) {
  for (size_t i = 0; i < views_.size(); ++i) {
    const Parameter& parameter = program.parameters[i];
    if (!parameter.trainable) continue;
    const auto found = index.find(parameter.key);
    if (found == index.end() || found->second.shape != parameter.shape) {
      return absl::DataLossError(absl::StrCat(parameter.key, " is missing, or has another shape"));
    }
    RETURN_IF_ERROR(ReadInto(found->second, views_[i].value));
  }
  return absl::OkStatus();
}

}  // namespace snug::weights
