// Every op, callable with operands that lie in memory in several ways, so that a test of how
// operands may lie (far_rows_test, layouts_test) or of bad arguments (refusals_test) is a test of
// all ops.
#ifndef TESTS_KERNELS_STRIDED_TESTING_H_
#define TESTS_KERNELS_STRIDED_TESTING_H_

#include <algorithm>
#include <any>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/types.h"
#include "tests/kernels/device.h"

namespace snug::kernels {

inline constexpr int64_t kStridedRows = 3;

enum class Layout : uint8_t {
  kAligned,  // Rows side by side, all of them aligned to 16 bytes.
  kFlush,    // The same; the last row ends where its allocation does.
  kBad,      // Rows an odd stride apart, aligned as their elements are.
  kFar,      // Rows more than 2^31 elements apart, aligned to 16 bytes where C divides by 8.
};

// Hands out operands in the order in which a call asks for them, and keeps them. Every operand
// begins with normal variates or random bytes, results too: the same ones in each layout. Far rows
// lie in memory that, but for them, is never touched; around others lies a pattern.
class Operands {
 public:
  Operands(Layout layout, int64_t C, DType dtype) : layout_(layout), C_(C), dtype_(dtype) {}

  int64_t C() const { return C_; }
  DType dtype() const { return dtype_; }

  // An op's parameters, with N, C and dtype set where it has them.
  template <typename Params>
  Params Of() const {
    Params p;
    if constexpr (requires { p.N; }) p.N = kStridedRows;
    if constexpr (requires { p.C; }) p.C = C_;
    if constexpr (requires { p.dtype; }) p.dtype = dtype_;
    return p;
  }

  // kStridedRows rows of C elements for each pointer and stride: of the type that is named or,
  // where there is none, of the pointer's, or where that is void, of dtype().
  template <typename Element = void, typename T, typename... Rest>
  void Rows(T*& data, int64_t& stride, Rest&... rest) {
    stride = Stride();
    data = static_cast<T*>(Add(BytesOf<Element, T>(), kStridedRows, C_, stride));
    if constexpr (sizeof...(rest) > 0) Rows<Element>(rest...);
  }
  // n elements, never far.
  template <typename Element = void, typename T>
  void Vector(T*& data, int64_t n) {
    data = static_cast<T*>(Add(BytesOf<Element, T>(), 1, n, n));
  }
  template <typename T, typename Index>
  void Indices(T*& data, std::initializer_list<Index> values) {
    Index* indices = nullptr;
    Vector(indices, static_cast<int64_t>(values.size()));
    data = indices;
    if (indices == nullptr) return;
    std::copy(values.begin(), values.end(), indices);
    const auto bytes = values.size() * sizeof(Index);
    before_.replace(before_.size() - bytes, bytes, reinterpret_cast<const char*>(indices), bytes);
  }
  // What is in it afterwards does not matter.
  void* Workspace(int64_t bytes) { return near_.emplace_back(bytes).data(); }

  // Calls an op with the parameters that were made for it.
  template <typename Params>
  Error Run(Error (*op)(const Params&, Stream), std::type_identity_t<Params> params) const {
    if (change_) change_(&params);
    return op(params, TestStream());
  }
  // From now on Run does this to the parameters (of which it is given a pointer) before it calls.
  using Change = std::function<void(std::any params)>;
  void BeforeRun(Change change) { change_ = std::move(change); }

  bool has_memory() const { return has_memory_; }
  bool GapsUntouched() const;
  // All rows, one after another, as they are now, or as they were before the call.
  std::string Now() const;
  const std::string& Before() const { return before_; }

 private:
  struct Operand {
    char* data;
    int64_t rows, row_bytes, rows_apart;
    const Bytes* memory;  // nullptr: far.
  };
  template <typename Element, typename T>
  int64_t BytesOf() const {
    if constexpr (!std::is_void_v<Element>) {
      return sizeof(Element);
    } else if constexpr (!std::is_void_v<T>) {
      return sizeof(T);
    } else {
      return SizeOf(dtype_);
    }
  }
  int64_t Stride() const;
  void* Add(int64_t element_bytes, int64_t rows, int64_t C, int64_t stride);

  Layout layout_;
  int64_t C_;
  DType dtype_;
  bool has_memory_ = true;
  std::deque<SparseMemory> sparse_;
  std::deque<Bytes> near_;
  std::vector<Operand> operands_;
  std::string before_;
  Change change_;
};

// An op, and how it is called with operands of this width.
struct StridedOp {
  const char* name;
  Error (*call)(Operands& operands);
};
std::span<const StridedOp> StridedLayerOps();    // strided_layer_ops.cc
std::span<const StridedOp> StridedStorageOps();  // strided_storage_ops.cc
std::span<const StridedOp> FlatOps();            // flat_ops.cc: those that take no strides

}  // namespace snug::kernels

#endif  // TESTS_KERNELS_STRIDED_TESTING_H_
