// The chart in a terminal. One job is drawn by Braille's dots, 2 x 4 in a character (U+2800 and a
// bit for each dot); several by their letters, or in colours where the terminal has them.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/chart.h"
#include "client/table.h"
#include "proto/snug/bytes.h"

namespace snug::client {
namespace {

constexpr int kRows = 8;        // Characters of a panel's height.
constexpr int kAxisWidth = 10;  // Characters before it.
constexpr int kMinWidth = 20;
constexpr int kBarWidth = 20;
constexpr const char* kColours[] = {"\033[36m", "\033[33m", "\033[35m", "\033[32m", "\033[34m"};
constexpr const char* kPlain = "\033[0m";
// Of a dot at (x, y): which bit of the character it is.
constexpr uint8_t kDots[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};

struct Cell {
  uint8_t dots = 0;
  int job = -1;
};

// A grid of dots. The first row is the top.
class Canvas {
 public:
  explicit Canvas(int width) : width_(width), cells_(static_cast<size_t>(width * kRows)) {}

  int dots_wide() const { return width_ * 2; }
  static int dots_high() { return kRows * 4; }
  void Mark(int x, int y, int job) {
    Cell& cell = cells_[static_cast<size_t>(y / 4 * width_ + x / 2)];
    cell.dots |= kDots[x % 2][y % 4];
    cell.job = job;
  }
  const Cell& At(int column, int row) const {
    return cells_[static_cast<size_t>(row * width_ + column)];
  }

 private:
  const int width_;
  std::vector<Cell> cells_;
};

int Scaled(double value, const Range& range, int most) {
  const double share = (value - range.low) / (range.high - range.low);
  return std::clamp(static_cast<int>(std::lround(share * most)), 0, most);
}

// A line from each point to the next, so that few points are one course as well.
void Draw(const Series& series, const Range& steps, const Range& values, Canvas& canvas) {
  const int right = canvas.dots_wide() - 1, bottom = Canvas::dots_high() - 1;
  int last_x = -1, last_y = 0;
  for (const auto& [step, value] : series.points) {
    const int x = Scaled(step, steps, right), y = bottom - Scaled(value, values, bottom);
    const int length = last_x < 0 ? 0 : std::max(std::abs(x - last_x), std::abs(y - last_y));
    for (int i = 1; i < length; ++i)
      canvas.Mark(last_x + (x - last_x) * i / length, last_y + (y - last_y) * i / length,
                  series.job);
    canvas.Mark(x, y, series.job);
    last_x = x, last_y = y;
  }
}

std::string Braille(uint8_t dots) {  // U+2800 + dots, in UTF-8.
  return {static_cast<char>(0xE2), static_cast<char>(0xA0 | dots >> 6),
          static_cast<char>(0x80 | (dots & 0x3F))};
}

std::string CellText(const Cell& cell, bool several, bool colour) {
  if (cell.job < 0) return " ";
  if (colour)
    return absl::StrCat(kColours[cell.job % std::size(kColours)], Braille(cell.dots), kPlain);
  return several ? std::string(1, static_cast<char>('a' + cell.job % 26)) : Braille(cell.dots);
}

void PrintPanel(const Panel& panel, bool several, const TextOptions& options, std::ostream& out) {
  const int width = std::max(options.columns - kAxisWidth - 3, kMinWidth);
  const Range steps = StepsOf(panel), values = ValuesOf(panel);
  Canvas canvas(width);
  for (const Series& series : panel.series) Draw(series, steps, values, canvas);
  out << panel.title << "\n";
  for (int row = 0; row < kRows; ++row) {
    const double at = values.high - (values.high - values.low) * row / (kRows - 1);
    const bool labelled = row == 0 || row == kRows - 1 || row == kRows / 2;
    std::string line = absl::StrFormat("%*s |", kAxisWidth, labelled ? AxisText(at) : "");
    for (int column = 0; column < width; ++column)
      absl::StrAppend(&line, CellText(canvas.At(column, row), several, options.colour));
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << "\n";
  }
  const std::string first = AxisText(steps.low), last = absl::StrCat("step ", AxisText(steps.high));
  const int gap = width - static_cast<int>(first.size() + last.size());
  out << std::string(kAxisWidth + 2, ' ') << first << std::string(std::max(gap, 1), ' ') << last
      << "\n\n";
}

std::string Mark(int job, bool several, bool colour) {
  if (colour) return absl::StrCat(kColours[job % std::size(kColours)], "*", kPlain, " ");
  return several ? absl::StrCat(std::string(1, static_cast<char>('a' + job % 26)), " ") : "";
}

void PrintMemory(const Chart& chart, std::ostream& out) {
  for (const MemoryBar& bar : chart.memory) {
    const double share =
        static_cast<double>(bar.peak_bytes) / static_cast<double>(bar.budget_bytes);
    const int full = std::clamp(static_cast<int>(share * kBarWidth), 0, kBarWidth);
    out << absl::StrFormat("%*s |", kAxisWidth, "memory") << std::string(full, '#')
        << std::string(kBarWidth - full, '.') << "| " << FormatBytes(bar.peak_bytes) << " of "
        << FormatBytes(bar.budget_bytes) << "  " << Printable(chart.jobs[bar.job]) << "\n";
  }
}

}  // namespace

void PrintChart(const Chart& chart, const TextOptions& options, std::ostream& out) {
  const bool several = chart.jobs.size() > 1;
  for (size_t job = 0; job < chart.jobs.size(); ++job)
    out << Mark(static_cast<int>(job), several, options.colour) << Printable(chart.jobs[job])
        << "\n";
  out << "\n";
  for (const Panel& panel : chart.panels) PrintPanel(panel, several, options, out);
  PrintMemory(chart, out);
}

}  // namespace snug::client
