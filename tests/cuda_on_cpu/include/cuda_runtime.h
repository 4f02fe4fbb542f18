// Stands in for the toolkit's header when .cu files are compiled as C++ for the emulation. The part
// of the language and of the runtime that kernels/ uses; C++17, as .cu files are.
#ifndef TESTS_CUDA_ON_CPU_INCLUDE_CUDA_RUNTIME_H_
#define TESTS_CUDA_ON_CPU_INCLUDE_CUDA_RUNTIME_H_

// Tells a source that is compiled for both.
#define SNUG_CUDA_ON_CPU 1

#include "tests/cuda_on_cpu/arithmetic.h"
#include "tests/cuda_on_cpu/language.h"
#include "tests/cuda_on_cpu/runtime.h"
#include "tests/cuda_on_cpu/threads.h"

#endif  // TESTS_CUDA_ON_CPU_INCLUDE_CUDA_RUNTIME_H_
