// What is added to attention's scores, by head and distance or by head and places of a grid
// (kernels/attention.h has the equations).
//
// The bias follows from head and distance alone, so that it needs no T x T either; its last entry
// holds for all that is farther, its first for what is farther behind the query, where that is
// seen. It comes after scale and softcap: there T5 (Raffel et al. 2020, sec. 2.1; of scale 1) and
// ALiBi (Press et al. 2022, sec. 3; Bloom, MPT) have it, and there models with a softcap (Gemma 2)
// add their mask. ALiBi is the table -slope[h] * b, as long as documents are, times scale where the
// sum is scaled (Falcon); T5's buckets are the table of their values up to max_distance.
//
// With a pitch the rows of a document are the places of a grid, c of them side by side, and a
// pair's entry follows from how far apart the two are in either direction. Swin's windows of W x W
// places (Liu et al. 2021, eq. 4) have the pitch 2W - 1, (2W - 1)^2 entries and the origin 2W (W -
// 1); of a window that a shift has cut, each part is a document with a c of its own.
#ifndef KERNELS_ATTENTION_BIAS_H_
#define KERNELS_ATTENTION_BIAS_H_

#include <cstdint>

namespace snug::kernels {

struct AttentionBias {
  // (H, B), fp32, finite; of a call on a stream: there. Null: none.
  const float* table = nullptr;
  int64_t entries = 0;       // B >= 1
  int64_t stride = 0;        // From a head to the next,
  int64_t entry_stride = 1;  // >= 1, and from an entry to the next: of a gradient too.
  int64_t origin = 0;        // In [0, B): the entry of distance 0.
  // 0: distances are those of rows. Else documents are grids, and every distance has an entry.
  int64_t pitch = 0;
  const int64_t* widths = nullptr;         // (documents), with a pitch: c, in [1, pitch].
  const int64_t* device_widths = nullptr;  // As the shape's device arrays.
};

}  // namespace snug::kernels

#endif  // KERNELS_ATTENTION_BIAS_H_
