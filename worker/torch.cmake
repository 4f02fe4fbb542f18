# LibTorch as the library `snug_torch`, and its precompiled headers as `snug_torch_pch`.
#
#   snug_use_torch(target)   links the target to LibTorch, with <ATen/ATen.h> precompiled
#
# LibTorch's own CMake package is not used: it refuses to load without a CUDA toolkit even for a CPU
# build, overrides CUDA's architectures, and exports the wheel's Protobuf 3.13 headers to every
# target that links it. What is needed is an include path and two libraries; they find the NVIDIA
# libraries they need by their own rpath. libtorch.so is left out on purpose: it is empty but for
# its need of libtorch_cuda.so, which doubles the start-up time of a process (0.25 s to 0.48 s). GPU
# targets link `snug_torch_cuda` on top (there with SNUG_CUDA=ON only).

if(DEFINED ENV{SNUG_TORCH_DIR} AND NOT SNUG_TORCH_DIR)
  set(SNUG_TORCH_DIR $ENV{SNUG_TORCH_DIR})
endif()
if(SNUG_TORCH_DIR)
  # <root>/share/cmake/Torch, what Torch_DIR would be, is understood as well.
  string(REGEX REPLACE "/share/cmake/Torch/?$" "" torch_root "${SNUG_TORCH_DIR}")
else()
  file(GLOB torch_root ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
endif()
if(NOT EXISTS "${torch_root}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "no LibTorch in \"${torch_root}\" (lib/libtorch_cpu.so is missing): "
    "run deploy/setup.sh, or set SNUG_TORCH_DIR to the folder of a LibTorch")
endif()
set(SNUG_TORCH_ROOT ${torch_root} CACHE INTERNAL "folder of the LibTorch in use")

function(snug_import_torch target)
  foreach(name ${ARGN})
    add_library(torch::${name} SHARED IMPORTED GLOBAL)
    set_target_properties(torch::${name} PROPERTIES
      IMPORTED_LOCATION ${SNUG_TORCH_ROOT}/lib/lib${name}.so)
    target_link_libraries(${target} INTERFACE torch::${name})
  endforeach()
endfunction()

add_library(snug_torch INTERFACE)
target_include_directories(snug_torch SYSTEM INTERFACE
  ${SNUG_TORCH_ROOT}/include ${SNUG_TORCH_ROOT}/include/torch/csrc/api/include)
snug_import_torch(snug_torch torch_cpu c10)
if(SNUG_CUDA AND EXISTS ${SNUG_TORCH_ROOT}/lib/libtorch_cuda.so)
  find_package(CUDAToolkit REQUIRED)
  add_library(snug_torch_cuda INTERFACE)
  snug_import_torch(snug_torch_cuda torch_cuda c10_cuda)
  target_link_libraries(snug_torch_cuda INTERFACE snug_torch)
  # cudart and cuBLAS are those that libtorch_cuda itself loads, beside the wheel or in its lib/. A
  # toolkit's have the same names, so a process has one of each in any case: these are the ones that
  # this LibTorch was built for, and a machine that only runs workers needs no toolkit.
  set(cuda_major ${CUDAToolkit_VERSION_MAJOR})
  set(cuda_wheel ${SNUG_TORCH_ROOT}/../nvidia/cu${cuda_major})
  foreach(name cudart cublas)
    find_file(SNUG_${name} NAMES lib${name}.so.${cuda_major} REQUIRED NO_DEFAULT_PATH
      PATHS ${cuda_wheel}/lib ${SNUG_TORCH_ROOT}/lib ${CUDAToolkit_LIBRARY_DIR})
    add_library(torch::${name} SHARED IMPORTED GLOBAL)
    set_target_properties(torch::${name} PROPERTIES IMPORTED_LOCATION ${SNUG_${name}})
    target_link_libraries(snug_torch_cuda INTERFACE torch::${name})
  endforeach()
  find_path(SNUG_CUBLAS_INCLUDE cublas_v2.h REQUIRED NO_DEFAULT_PATH
    PATHS ${CUDAToolkit_INCLUDE_DIRS} ${cuda_wheel}/include)
  target_include_directories(snug_torch_cuda SYSTEM INTERFACE
    ${CUDAToolkit_INCLUDE_DIRS} ${SNUG_CUBLAS_INCLUDE})
endif()
# at::parallel_for is inlined into its caller and is serial there without -fopenmp. LibTorch brings
# the OpenMP runtime (same soname as the compiler's), so that only one is loaded.
target_compile_options(snug_torch INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-fopenmp>")
if(EXISTS ${SNUG_TORCH_ROOT}/lib/libgomp.so.1)
  target_link_libraries(snug_torch INTERFACE ${SNUG_TORCH_ROOT}/lib/libgomp.so.1)
else()
  target_link_libraries(snug_torch INTERFACE OpenMP::OpenMP_CXX)
endif()

# One translation unit that only carries the precompiled header. -fpch-preprocess lets ccache see
# through it. GCC takes the header only if flags and macros agree, and -Winvalid-pch is an error
# here: targets that use torch therefore set no definitions of their own.
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/torch_pch.cc
  CONTENT "// Carries the precompiled header.\n" @ONLY)
add_library(snug_torch_pch STATIC ${CMAKE_CURRENT_BINARY_DIR}/torch_pch.cc)
target_compile_options(snug_torch_pch PUBLIC "$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>")
target_link_libraries(snug_torch_pch PUBLIC snug_torch)
# <torch/torch.h> instead would triple a file's compile time: all that its headers instantiate is
# compiled again in each.
target_precompile_headers(snug_torch_pch PRIVATE <ATen/ATen.h> <ATen/Parallel.h>)

function(snug_use_torch target)
  target_link_libraries(${target} PRIVATE snug_torch_pch)
  target_precompile_headers(${target} REUSE_FROM snug_torch_pch)
endfunction()
