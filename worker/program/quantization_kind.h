// How the linear weights of a frozen base are held (quantization.h).
#ifndef WORKER_PROGRAM_QUANTIZATION_KIND_H_
#define WORKER_PROGRAM_QUANTIZATION_KIND_H_

#include <cstdint>

namespace snug::program {

enum class Quantization : uint8_t { kNone, kNf4, kInt8 };

}  // namespace snug::program

#endif  // WORKER_PROGRAM_QUANTIZATION_KIND_H_
