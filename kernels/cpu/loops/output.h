// Where an op's results go: into the caches, where the next op of a step finds them, or past them,
// when they are more than the last cache holds. Such an output has left the cache before anybody
// reads it, so its lines need not be read first, nor take the place of others. Both ways leave the
// same bytes.
#ifndef KERNELS_CPU_LOOPS_OUTPUT_H_
#define KERNELS_CPU_LOOPS_OUTPUT_H_

#include <cstdint>
#include <cstring>

#include "kernels/cpu/loops/cached_bytes.h"
#include "kernels/cpu/loops/vector.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace snug::kernels::SNUG_ISA {

#ifdef __AVX__
using StreamedPiece = __m256i;
static SNUG_INLINE void StreamPiece(StreamedPiece* y, StreamedPiece piece) {
  _mm256_stream_si256(y, piece);
}
#elif defined(__SSE2__)
using StreamedPiece = __m128i;
static SNUG_INLINE void StreamPiece(StreamedPiece* y, StreamedPiece piece) {
  _mm_stream_si128(y, piece);
}
#endif

// Results of one call of an inner loop. Not for what was read just before, as where an op works in
// place: its lines are in the cache already.
class Output {
 public:
  // bytes: of all that the op writes, whatever this call's share of it is.
  explicit Output(int64_t bytes) : past_caches_(bytes > CachedBytes()) {}
  Output(const Output&) = delete;
  // Other stores, such as those that tell a thread that this one is done, may pass streamed ones.
  ~Output() {
#ifdef __SSE2__
    if (past_caches_) _mm_sfence();
#endif
  }

  template <typename T>
  SNUG_INLINE void Put(T* y, F32x16 v, Part part) const {
    Store(y, v, part);
  }
  template <typename T>
  SNUG_INLINE void Put(T* y, F32x16 v, Whole) const {
    Put<kLanes>(y, [&](T* to) SNUG_LAMBDA { Store(to, v, Whole{}); });
  }
  // What store(to) stores at `to`: kElements, half a line of them or more.
  template <int64_t kElements, typename T, typename Storing>
  SNUG_INLINE void Put(T* y, Storing store) const {
    if (!past_caches_ || !Aligned(y, kElements * sizeof(T))) return store(y);
    T elements[kElements];
    store(elements);
    Stream(y, elements, sizeof(elements));
  }

  void Copy(void* to, const void* from, int64_t bytes) const {
    auto* y = static_cast<char*>(to);
    const auto* x = static_cast<const char*>(from);
    if (past_caches_ && bytes >= kLine) {
      int64_t i = -reinterpret_cast<intptr_t>(y) & (kLine - 1);
      memcpy(y, x, i);  // Up to the next line.
      for (; i + kLine <= bytes; i += kLine) Stream(y + i, x + i, kLine);
      y += i;
      x += i;
      bytes -= i;
    }
    memcpy(y, x, bytes);
  }

 private:
  static constexpr int64_t kLine = 64;

  static SNUG_INLINE bool Aligned(const void* y, uintptr_t bytes) {
    return reinterpret_cast<uintptr_t>(y) % bytes == 0;
  }
  static SNUG_INLINE void Stream(void* y, const void* x, int64_t bytes) {
#ifdef __SSE2__
    for (int64_t i = 0; i < bytes; i += sizeof(StreamedPiece)) {
      StreamedPiece piece;
      memcpy(&piece, static_cast<const char*>(x) + i, sizeof(piece));
      StreamPiece(reinterpret_cast<StreamedPiece*>(static_cast<char*>(y) + i), piece);
    }
#else
    memcpy(y, x, bytes);
#endif
  }

  const bool past_caches_;
};

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_OUTPUT_H_
