// CUDA takes memory of a GPU for a kernel's code when it is first launched, and libraries for their
// workspaces when a stream first calls them. What a node measures as the context of its workers has
// to have all of that, so it runs here once.
//
// The large kernels are those of libraries: cuBLAS chooses them by the sides of a product, ATen's
// attention by the width of a head and whether there is a window. Of our own those of a decoder's
// tape run; each of the others takes some KiB, and all together a few MiB.
#ifndef WORKER_TRAIN_LOAD_KERNELS_H_
#define WORKER_TRAIN_LOAD_KERNELS_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "worker/execute/device.h"

namespace snug::train {

// Steps of small decoders, whole and with adapters, in each number type and with heads of each
// width that attention has kernels of its own for. Each has a layer with a window and one without.
absl::Status RunSmallSteps(execute::Device& device);

// Each kind of product, in each combination of number types, of matrices with all these sides.
absl::Status RunProducts(execute::Device& device, std::span<const int64_t> sides);

// Both, products in TF32 too, and a copy on the stream of copies. Takes 52 MiB meanwhile.
absl::Status LoadKernels(execute::Device& device);

}  // namespace snug::train

#endif  // WORKER_TRAIN_LOAD_KERNELS_H_
