// Pictures of another size, by pillow's bilinear filter, bit for bit as PIL.Image.resize gives
// them: where a picture shrinks the filter is as wide as the pixels that fall into one. First
// across, then down, each rounded to bytes, by weights in fixed point.
#ifndef WORKER_TRAIN_RESAMPLE_H_
#define WORKER_TRAIN_RESAMPLE_H_

#include <cstdint>
#include <vector>

namespace snug::train {

// Bytes [height, width, channels], of which a line lies `line` bytes behind the one before. Owns
// nothing.
struct Picture {
  const uint8_t* pixels = nullptr;
  int64_t height = 0, width = 0, channels = 0;
  int64_t line = 0;
};

// `to`: a square of `side` pixels, its lines one behind another. `between`: room for as many bytes
// as `side` lines, or columns, of the picture have, whichever is more.
void Resample(const Picture& from, int64_t side, uint8_t* between, uint8_t* to);

}  // namespace snug::train

#endif  // WORKER_TRAIN_RESAMPLE_H_
