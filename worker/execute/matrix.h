// A matrix in a device's memory as products read it: rows of a view, a part of them, or their
// transpose. Owns nothing, looks at nothing, knows no torch.
#ifndef WORKER_EXECUTE_MATRIX_H_
#define WORKER_EXECUTE_MATRIX_H_

#include <cstdint>

#include "worker/execute/view.h"

namespace snug::execute {

struct Matrix {
  void* data = nullptr;
  int64_t rows = 0, columns = 0;
  int64_t stride = 0;       // Elements from one row to the next, as they lie.
  bool transposed = false;  // Rows of memory are this matrix's columns.
  program::DType dtype = program::DType::kF32;

  Matrix() = default;
  // A view's rows lie behind one another.
  Matrix(const View& view)  // NOLINT: a view is a matrix.
      : data(view.data),
        rows(view.rows),
        columns(view.width),
        stride(view.width),
        dtype(view.dtype) {}

  Matrix t() const {
    Matrix other = *this;
    other.rows = columns;
    other.columns = rows;
    other.transposed = !transposed;
    return other;
  }
  Matrix Rows(int64_t first, int64_t count) const {
    Matrix part = *this;
    part.data = At(first * (transposed ? 1 : stride));
    part.rows = count;
    return part;
  }
  Matrix Columns(int64_t first, int64_t count) const {
    Matrix part = *this;
    part.data = At(first * (transposed ? stride : 1));
    part.columns = count;
    return part;
  }

 private:
  void* At(int64_t elements) const {
    return static_cast<char*>(data) + elements * program::SizeOf(dtype);
  }
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_MATRIX_H_
