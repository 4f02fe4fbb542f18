// The layers as areas on one another, over the instants of a step.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/memory_chart.h"
#include "proto/snug/bytes.h"

namespace snug::client {
namespace {

// In pixels.
constexpr int kWidth = 760;
constexpr int kHeight = 300;
constexpr int kTop = 40;
constexpr int kLeft = 90;
constexpr int kRight = 140;  // For the legend.
constexpr int kLineHeight = 18;
constexpr int kGridLines = 4;
constexpr const char* kColours[] = {"#bbbbbb", "#0072b2", "#cc79a7", "#56b4e9",
                                    "#f0e442", "#009e73", "#e69f00", "#d55e00"};

const char* Colour(size_t layer) { return kColours[layer % std::size(kColours)]; }

std::string Text(double x, double y, const std::string& text, const char* anchor) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor,
                         absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}}));
}

class Drawing {
 public:
  explicit Drawing(const MemoryChart& chart) : chart_(chart) {}

  // Each instant is as wide as the others, and level; those of equal bytes are one edge.
  std::string Areas() const {
    const size_t instants = chart_.backward.size();
    std::vector<int64_t> floor(instants, 0);
    std::string svg;
    for (size_t l = 0; l < chart_.layers.size(); ++l) {
      std::string over, under;  // Along the upper side, and back along the lower one.
      for (size_t i = 0, end = 0; i < instants; i = end) {
        const int64_t height = chart_.layers[l].bytes[i], low = floor[i], top = low + height;
        for (end = i; end < instants && floor[end] == low && chart_.layers[l].bytes[end] == height;
             ++end)
          floor[end] = top;
        absl::StrAppend(&over, Point(i, top), Point(end, top));
        under = absl::StrCat(Point(end, low), Point(i, low), under);
      }
      absl::StrAppend(&svg, "<polygon points=\"", over, under, "\" fill=\"", Colour(l), "\"/>\n");
    }
    return svg;
  }

  std::string Axes() const {
    std::string svg =
        Text(kLeft, kTop - 16, absl::StrCat("Live bytes of a step: ", chart_.plan), "start");
    for (int i = 0; i <= kGridLines; ++i) {
      const int64_t bytes = chart_.peak_bytes / kGridLines * i;
      absl::StrAppend(&svg,
                      absl::StrFormat("<path d=\"M%d %.1fH%d\" class=\"grid\"/>\n", kLeft,
                                      Down(bytes), kWidth - kRight),
                      Text(kLeft - 6, Down(bytes) + 4, FormatBytes(bytes), "end"));
    }
    const auto turn = std::find(chart_.backward.begin(), chart_.backward.end(), true);
    const double x = Across(static_cast<size_t>(turn - chart_.backward.begin()));
    return absl::StrCat(
        svg,
        absl::StrFormat("<path d=\"M%.1f %dV%d\" class=\"turn\"/>\n", x, kTop - 8, kTop + kHeight),
        Text(x - 6, kTop + kHeight + kLineHeight, "forward", "end"),
        Text(x + 6, kTop + kHeight + kLineHeight, "backward", "start"));
  }

  // From the top, as the layers lie.
  std::string Legend() const {
    std::string svg;
    double y = kTop + kLineHeight;
    for (size_t l = chart_.layers.size(); l-- > 0; y += 2 * kLineHeight) {
      const MemoryLayer& layer = chart_.layers[l];
      absl::StrAppend(
          &svg,
          absl::StrFormat("<rect x=\"%d\" y=\"%.1f\" width=\"12\" height=\"12\" "
                          "fill=\"%s\"/>\n",
                          kWidth - kRight + 12, y - 10, Colour(l)),
          Text(kWidth - kRight + 30, y, layer.name, "start"),
          Text(kWidth - kRight + 30, y + kLineHeight - 3, FormatBytes(layer.peak_bytes), "start"));
    }
    return svg;
  }

 private:
  double Across(size_t instant) const {
    return kLeft + static_cast<double>(instant) / static_cast<double>(chart_.backward.size()) *
                       (kWidth - kLeft - kRight);
  }
  double Down(int64_t bytes) const {
    return kTop + kHeight -
           static_cast<double>(bytes) / static_cast<double>(chart_.peak_bytes) * kHeight;
  }
  std::string Point(size_t instant, int64_t bytes) const {
    return absl::StrFormat("%.1f,%.1f ", Across(instant), Down(bytes));
  }

  const MemoryChart& chart_;
};

}  // namespace

std::string MemoryChartSvg(const MemoryChart& chart) {
  const Drawing drawing(chart);
  const int layers = static_cast<int>(chart.layers.size());
  const int height = kTop + std::max(kHeight + 2 * kLineHeight, (2 * layers + 1) * kLineHeight);
  return absl::StrCat(
      absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                      "viewBox=\"0 0 %d %d\">\n",
                      kWidth, height, kWidth, height),
      "<style>text{font:12px sans-serif;fill:#333}.grid{stroke:#ddd}"
      ".turn{stroke:#333;stroke-dasharray:4 3}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      chart.layers.empty() ? "" : drawing.Areas() + drawing.Axes() + drawing.Legend(), "</svg>\n");
}

}  // namespace snug::client
