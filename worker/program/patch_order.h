// The orders in which an image's patches lie where attention has windows (Swin: Liu et al. 2021).
//
// A stage has side x side patches and windows of W x W. Row (y, x) of a grid that is shifted by S
// is patch ((y + S) mod side, (x + S) mod side). A shift brings patches together that are no
// neighbours: the last window of each column of windows is cut after W - S rows, the last of each
// row of them after W - S columns. Patches lie window by window, part by part, and within a part
// from left to right and from top to bottom. With each part a document of its own, attention of
// documents needs no mask.
//
// transformers adds -100 to the scores of pairs in different parts where here they are left out;
// the two differ where scores of a window differ by about as much.
#ifndef WORKER_PROGRAM_PATCH_ORDER_H_
#define WORKER_PROGRAM_PATCH_ORDER_H_

#include <cstdint>
#include <vector>

namespace snug::program {

struct PatchOrder {
  int64_t side = 0;    // Patches; 0: there is no order.
  int64_t window = 0;  // W, which divides `side`.
  int64_t shift = 0;   // S, in [0, W).
  // The four patches that become one behind one another: (0, 0), (1, 0), (0, 1), (1, 1) of rows and
  // columns, as a file's weights have them. `window` is then that of the half grid that they
  // become.
  bool in_fours = false;

  bool operator==(const PatchOrder&) const = default;
  int64_t patches() const { return side * side; }
  // Of an image: windows and parts of windows.
  int64_t parts() const { return PartsOfSide() * PartsOfSide(); }
  // The bias of attention has an entry for each distance of two places of a window
  // (kernels/attention.h).
  int64_t pitch() const { return 2 * window - 1; }
  int64_t entries() const { return pitch() * pitch(); }
  int64_t origin() const { return 2 * window * (window - 1); }

 private:
  int64_t PartsOfSide() const { return side / window + (shift > 0 ? 1 : 0); }
};

// By row of an image, its patch: y * side + x.
std::vector<int32_t> PatchesOf(const PatchOrder& order);

// By row in the order `to`, the row in the order `from` that has the same patch.
std::vector<int32_t> RowsBetween(const PatchOrder& from, const PatchOrder& to);

// Of an image: how many patches each part has, and how many of them lie side by side.
struct WindowParts {
  std::vector<int64_t> patches, widths;
};
WindowParts PartsOf(const PatchOrder& order);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PATCH_ORDER_H_
