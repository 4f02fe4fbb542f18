#include "client/plan_picture.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/plan_text.h"

namespace snug::client {
namespace {

// In pixels.
constexpr int kLineHeight = 15;
constexpr double kCharacterWidth = 6.63;  // Of 11 px in the usual fixed-width fonts, 0.6 em.
constexpr int kMargin = 16;
constexpr int kChartWidth = 760;
constexpr int kChartHeight = 400;

// A fixed-width font keeps the table's columns; `textLength` does where the font is another.
std::string LineSvg(absl::string_view line, int y) {
  const double width = kCharacterWidth * static_cast<double>(line.size());
  return absl::StrFormat(
      "<text class=\"%s\" x=\"%d\" y=\"%d\" textLength=\"%.1f\" xml:space=\"preserve\">%s</text>\n",
      absl::StartsWith(line, "* ") ? "table chosen" : "table", kMargin, y, width,
      absl::StrReplaceAll(line, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}}));
}

}  // namespace

std::string PlanSvg(const v1::PlanJobResponse& reply, const MemoryChart& chart) {
  std::ostringstream text;
  PrintPlans(reply, text);
  std::string lines;
  size_t columns = 0;
  int y = kMargin;
  for (absl::string_view line : absl::StrSplit(text.str(), '\n')) {
    y += kLineHeight;
    if (line.empty()) continue;
    columns = std::max(columns, line.size());
    absl::StrAppend(&lines, LineSvg(line, y));
  }
  const int width = std::max(
      kChartWidth, static_cast<int>(kCharacterWidth * static_cast<double>(columns)) + 2 * kMargin);
  return absl::StrCat(
      absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                      "viewBox=\"0 0 %d %d\">\n",
                      width, y + kChartHeight, width, y + kChartHeight),
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
      "<style>.table{font:11px monospace;fill:#333}.chosen{font-weight:bold;fill:#0072b2}"
      "</style>\n",
      lines, absl::StrFormat("<g transform=\"translate(%d %d)\">\n", (width - kChartWidth) / 2, y),
      MemoryChartSvg(chart), "</g>\n</svg>\n");
}

}  // namespace snug::client
