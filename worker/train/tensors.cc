#include "worker/train/tensors.h"

namespace snug::train {

using checkpoint::TensorBytes;

std::vector<TensorBytes> WeightsOf(Trainer& trainer, Digits digits) {
  std::vector<TensorBytes> tensors;
  const weights::Parameters& parameters = trainer.parameters();
  for (size_t i = 0; i < parameters.views().size(); ++i) {
    const program::Parameter& parameter = trainer.program().parameters[i];
    if (!parameter.trainable) continue;
    const bool exact = digits == Digits::kExact;
    const execute::View& view = exact ? parameters.exact(i) : parameters.views()[i].value;
    const bool renamed = !exact && InAdapterFile(parameter);
    tensors.push_back({.key = renamed ? AdapterFileKey(parameter) : parameter.key,
                       .dtype = view.dtype == program::DType::kF32 ? "F32" : "BF16",
                       .shape = parameter.shape,
                       .data = view.data,
                       .bytes = view.bytes(),
                       .memory = trainer.tensor_memory()});
  }
  return tensors;
}

std::vector<TensorBytes> OptimizerStateOf(Trainer& trainer) {
  std::vector<TensorBytes> tensors;
  for (const Moments& moments : trainer.optimizer().moments()) {
    const auto index = static_cast<size_t>(moments.parameter);
    const program::Parameter& parameter = trainer.program().parameters[index];
    const auto add = [&](const char* suffix, const char* dtype, const std::vector<int64_t>& shape,
                         const execute::StateBuffer& buffer) {
      tensors.push_back({parameter.key + suffix, dtype, shape, buffer.data(), buffer.bytes(),
                         trainer.tensor_memory()});
    };
    const char* dtype = moments.coded() ? "U8" : "F32";
    add(".exp_avg", dtype, parameter.shape, moments.first);
    add(".exp_avg_sq", dtype, parameter.shape, moments.second);
    if (!moments.coded()) continue;
    const int64_t blocks = moments.first_scale.bytes() / program::SizeOf(program::DType::kF32);
    add(".exp_avg.absmax", "F32", {blocks}, moments.first_scale);
    add(".exp_avg_sq.absmax", "F32", {blocks}, moments.second_scale);
  }
  return tensors;
}

}  // namespace snug::train
