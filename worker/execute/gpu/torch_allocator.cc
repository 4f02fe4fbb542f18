#include "worker/execute/gpu/torch_allocator.h"

#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <stdexcept>

namespace snug::execute {
namespace {

// Tensors in ATen's static storage may outlive it, so its functions ask where it is.
TrackingAllocator* current = nullptr;

// `stream` does not matter: pieces of a slice are used on the op's stream alone.
void* Take(size_t bytes, int /*device*/, cudaStream_t /*stream*/) {
  if (bytes == 0) return nullptr;
  if (current == nullptr) throw std::runtime_error("ATen takes GPU memory, and no GPU is open");
  return current->Take(static_cast<int64_t>(bytes)).address;
}

void GiveBack(void* address, size_t /*bytes*/, int /*device*/, cudaStream_t /*stream*/) {
  if (current != nullptr) current->GiveBackAddress(address);
}

void GiveToAten() {
  namespace pluggable = torch::cuda::CUDAPluggableAllocator;
  static const auto allocator = pluggable::createCustomAllocator(&Take, &GiveBack);
  static const bool given = (pluggable::changeCurrentAllocator(allocator), true);
  (void)given;
}

}  // namespace

TorchAllocator::TorchAllocator(TrackingAllocator& allocator) {
  GiveToAten();
  current = &allocator;
}

TorchAllocator::~TorchAllocator() { current = nullptr; }

}  // namespace snug::execute
