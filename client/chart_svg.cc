// The chart as SVG: a panel below the other, each with its axes; bars of memory; a legend.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/chart.h"
#include "proto/snug/bytes.h"

namespace snug::client {
namespace {

// In pixels.
constexpr int kWidth = 760;
constexpr int kPanelHeight = 170;
constexpr int kPanelGap = 50;
constexpr int kLeft = 70;
constexpr int kRight = 20;
constexpr int kLineHeight = 18;
constexpr int kGridLines = 4;
constexpr const char* kColours[] = {"#0072b2", "#e69f00", "#cc79a7", "#009e73", "#56b4e9"};

const char* Colour(int job) { return kColours[job % static_cast<int>(std::size(kColours))]; }

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

std::string Text(double x, double y, const std::string& text, const char* anchor) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor,
                         Escaped(text));
}

double Across(double step, const Range& steps) {
  return kLeft + (step - steps.low) / (steps.high - steps.low) * (kWidth - kLeft - kRight);
}

double Down(double value, const Range& values, double top) {
  return top + (values.high - value) / (values.high - values.low) * kPanelHeight;
}

void AddPanel(const Panel& panel, double top, std::string& svg) {
  const Range steps = StepsOf(panel), values = ValuesOf(panel);
  absl::StrAppend(&svg, Text(kLeft, top - 8, panel.title, "start"));
  for (int i = 0; i <= kGridLines; ++i) {
    const double value = values.low + (values.high - values.low) * i / kGridLines;
    const double y = Down(value, values, top);
    absl::StrAppend(&svg, absl::StrFormat("<path d=\"M%d %.1fH%d\" class=\"grid\"/>\n", kLeft, y,
                                          kWidth - kRight));
    absl::StrAppend(&svg, Text(kLeft - 6, y + 4, AxisText(value), "end"));
  }
  const double below = top + kPanelHeight + 16;
  absl::StrAppend(&svg, Text(kLeft, below, AxisText(steps.low), "start"),
                  Text(kWidth - kRight, below, absl::StrCat("step ", AxisText(steps.high)), "end"));
  for (const Series& series : panel.series) {
    std::string points;
    for (const auto& [step, value] : series.points)
      absl::StrAppend(&points,
                      absl::StrFormat("%.1f,%.1f ", Across(step, steps), Down(value, values, top)));
    absl::StrAppend(&svg, absl::StrFormat("<polyline points=\"%s\" stroke=\"%s\"/>\n", points,
                                          Colour(series.job)));
    if (series.points.size() > 1) continue;
    absl::StrAppend(
        &svg, absl::StrFormat("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                              Across(series.points[0].first, steps),
                              Down(series.points[0].second, values, top), Colour(series.job)));
  }
}

void AddMemory(const MemoryBar& bar, double top, std::string& svg) {
  const double width = kWidth - kLeft - kRight;
  const double share = static_cast<double>(bar.peak_bytes) / static_cast<double>(bar.budget_bytes);
  absl::StrAppend(&svg, Text(kLeft - 6, top + 11, "memory", "end"));
  for (const auto& [part, fill] : {std::pair{1.0, "#ddd"}, {std::min(share, 1.0), Colour(bar.job)}})
    absl::StrAppend(&svg, absl::StrFormat("<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"14\" "
                                          "fill=\"%s\"/>\n",
                                          kLeft, top, width * part, fill));
  absl::StrAppend(
      &svg, Text(kLeft + 6, top + 11,
                 absl::StrCat(FormatBytes(bar.peak_bytes), " of ", FormatBytes(bar.budget_bytes)),
                 "start"));
}

}  // namespace

std::string ChartSvg(const Chart& chart) {
  std::string body;
  double y = kLineHeight + 4;
  for (size_t job = 0; job < chart.jobs.size(); ++job, y += kLineHeight) {
    absl::StrAppend(&body, absl::StrFormat("<rect x=\"%d\" y=\"%.1f\" width=\"12\" height=\"4\" "
                                           "fill=\"%s\"/>\n",
                                           kLeft, y - 6, Colour(static_cast<int>(job))));
    absl::StrAppend(&body, Text(kLeft + 18, y, chart.jobs[job], "start"));
  }
  for (const Panel& panel : chart.panels) {
    y += kPanelGap - kLineHeight;
    AddPanel(panel, y, body);
    y += kPanelHeight + kPanelGap - kLineHeight;
  }
  for (const MemoryBar& bar : chart.memory) {
    AddMemory(bar, y, body);
    y += kLineHeight + 4;
  }
  return absl::StrCat(
      absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
                      "viewBox=\"0 0 %d %.0f\">\n",
                      kWidth, y + kLineHeight, kWidth, y + kLineHeight),
      "<style>text{font:12px sans-serif;fill:#333}polyline{fill:none;stroke-width:1.5}"
      ".grid{stroke:#ddd}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      body, "</svg>\n");
}

}  // namespace snug::client
