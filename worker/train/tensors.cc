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
    const int64_t bytes = parameter.elements() * program::SizeOf(program::DType::kF32);
    const auto add = [&](const char* suffix, void* data) {
      tensors.push_back(
          {parameter.key + suffix, "F32", parameter.shape, data, bytes, trainer.tensor_memory()});
    };
    add(".exp_avg", moments.first.data());
    add(".exp_avg_sq", moments.second.data());
  }
  return tensors;
}

}  // namespace snug::train
