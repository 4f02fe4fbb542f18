// Many tensors in one launch: their descriptors travel as parameters of the kernel, as many as fit,
// and their elements are cut into spans, so that a thousand small tensors and one large tensor keep
// a GPU equally busy. Spans depend on the sizes of the tensors alone.
#ifndef KERNELS_CUDA_TENSOR_LIST_CUH_
#define KERNELS_CUDA_TENSOR_LIST_CUH_

#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"

namespace snug::kernels::cuda {

inline constexpr int64_t kSpanElements = 8192;
// Of the 4096 that a kernel's parameters may have on every GPU; the rest is for scalars.
inline constexpr int64_t kListBytes = 3584;

template <typename Tensor>
struct TensorList {
  static constexpr int kMax = static_cast<int>((kListBytes - 16) / (sizeof(Tensor) + 8));
  Tensor tensors[kMax];
  int64_t first_span[kMax + 1];  // Of tensor i; [count]: the number of all.
  int count = 0;
  SNUG_HOST_DEVICE int64_t spans() const { return first_span[count]; }
};

// body(tensor, begin, end) for each span of elements, by some block.
template <typename Tensor, typename Body>
__device__ inline void ForSpans(const TensorList<Tensor>& list, const Body& body) {
  for (int64_t span = blockIdx.x; span < list.spans(); span += gridDim.x) {
    int low = 0, high = list.count - 1;  // The tensor is one of [low, high].
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (list.first_span[middle] <= span) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const int64_t begin = (span - list.first_span[low]) * kSpanElements;
    const int64_t end = list.tensors[low].n - begin;
    body(list.tensors[low], begin, begin + (end < kSpanElements ? end : kSpanElements));
  }
}

// update(Constant<V>{}, i) for packs of V elements from `begin` on where `wide`, and one by one for
// what is left, on the threads of the block.
template <int V, typename Update>
__device__ inline void ForSpanPacks(bool wide, int64_t begin, int64_t end, const Update& update) {
  const int64_t packs_end = wide ? begin + (end - begin) / V * V : begin;
  for (int64_t i = begin + int64_t{threadIdx.x} * V; i < packs_end; i += int64_t{blockDim.x} * V) {
    update(Constant<V>{}, i);
  }
  for (int64_t i = packs_end + threadIdx.x; i < end; i += blockDim.x) update(Constant<1>{}, i);
}

__device__ inline bool IsAligned(const void* pointer, unsigned bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// launch(list) for lists that hold all tensors which `wanted` picks, in their order.
template <typename Tensor, typename Wanted, typename LaunchList>
inline Error ForLists(const Tensor* tensors, int64_t count, const Wanted& wanted,
                      const LaunchList& launch) {
  TensorList<Tensor> list = {};
  for (int64_t i = 0; i < count; ++i) {
    if (tensors[i].n > 0 && wanted(tensors[i])) {
      list.tensors[list.count] = tensors[i];
      list.first_span[list.count + 1] =
          list.first_span[list.count] + Ceil(tensors[i].n, kSpanElements);
      ++list.count;
    }
    if (list.count < TensorList<Tensor>::kMax && i + 1 < count) continue;
    if (const Error error = launch(list); !error.ok()) return error;
    list.count = 0;
  }
  return {};
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_TENSOR_LIST_CUH_
