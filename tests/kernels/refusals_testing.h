// How calls of ops can be wrong, and what their errors must say.
#ifndef TESTS_KERNELS_REFUSALS_TESTING_H_
#define TESTS_KERNELS_REFUSALS_TESTING_H_

#include <any>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/types.h"
#include "tests/kernels/strided_testing.h"

namespace snug::kernels {

enum class Where : uint8_t { kAnywhere, kCpu, kStream };

struct Refusal {
  std::string says;  // "bad stride: activation.x_stride" also fits an error of "x_stride".
  Operands::Change change;
  Where where;
};
struct RefusedOp {
  std::string op;  // Of StridedLayerOps, StridedStorageOps or FlatOps.
  std::vector<Refusal> refusals;
};
std::vector<RefusedOp> RefusedLayerOps();    // refused_layer_ops.cc
std::vector<RefusedOp> RefusedStorageOps();  // refused_storage_ops.cc

// One way in which the call that the op's entry makes goes wrong.
template <typename Params>
struct Break {
  const char* says;
  void (*change)(Params& p);
  Where where = Where::kAnywhere;
};

template <typename Params>
RefusedOp Refused(const char* op, std::initializer_list<Break<Params>> breaks) {
  RefusedOp refused = {op, {}};
  for (const Break<Params>& b : breaks) {
    const auto change = [b](std::any params) { b.change(*std::any_cast<Params*>(params)); };
    refused.refusals.push_back({b.says, change, b.where});
  }
  return refused;
}

// What bad operands are made of.
inline int64_t zeros[4] = {}, offset_one[4] = {1, 1, 1, 1};
inline int32_t no_ids[4] = {-1, -1, -1, -1};
inline float floats[512] = {};

template <typename Enum>
Enum AfterLast(Enum /*value*/) {
  return static_cast<Enum>(9);
}
inline DType AfterLast(DType /*type*/) { return static_cast<DType>(3); }
inline IndexType AfterLast(IndexType /*type*/) { return static_cast<IndexType>(2); }

// The first tensor of a list, in a list of its own.
template <typename Params>
auto& Tensor(Params& p) {
  static auto tensor = *p.tensors;
  tensor = *p.tensors;
  p.tensors = &tensor;
  return tensor;
}

}  // namespace snug::kernels

#define SNUG_SET(code, field, value, ...)                                         \
  {                                                                               \
    code ": " #field, [](auto& p) { p.field = value; } __VA_OPT__(, ) __VA_ARGS__ \
  }
#define SNUG_NULL(field, ...) SNUG_SET("null pointer", field, nullptr __VA_OPT__(, ) __VA_ARGS__)
#define SNUG_SHAPE(field, ...) SNUG_SET("bad shape", field, -1 __VA_OPT__(, ) __VA_ARGS__)
#define SNUG_STRIDE(field) SNUG_SET("bad stride", field, -1)
#define SNUG_VALUE(field, value, ...) SNUG_SET("bad value", field, value __VA_OPT__(, ) __VA_ARGS__)
// An enumerator that there is not. Of number types the first behind the last.
#define SNUG_NO_ENUM(code, field) SNUG_SET(code, field, AfterLast(p.field))
#define SNUG_TYPE(field) SNUG_NO_ENUM("bad dtype", field)
#define SNUG_KIND(field) SNUG_NO_ENUM("bad value", field)
// Ids are read by the host on the CPU alone.
#define SNUG_IDS(field) SNUG_SET("bad index", field, no_ids, Where::kCpu)
// What else must be said of it.
#define SNUG_SAYS(says, ...)           \
  {                                    \
    says, [](auto& p) { __VA_ARGS__; } \
  }

#endif  // TESTS_KERNELS_REFUSALS_TESTING_H_
