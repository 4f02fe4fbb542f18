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
                       .bytes = view.bytes()});
  }
  return tensors;
}

std::vector<TensorBytes> OptimizerStateOf(Trainer& trainer) {
  std::vector<TensorBytes> tensors;
  for (const Moments& moments : trainer.optimizer().moments()) {
    const auto index = static_cast<size_t>(moments.parameter);
    const program::Parameter& parameter = trainer.program().parameters[index];
    const int64_t bytes = parameter.elements() * program::SizeOf(program::DType::kF32);
    tensors.push_back(
        {parameter.key + ".exp_avg", "F32", parameter.shape, moments.first.data(), bytes});
    tensors.push_back(
        {parameter.key + ".exp_avg_sq", "F32", parameter.shape, moments.second.data(), bytes});
  }
  return tensors;
}

}  // namespace snug::train
