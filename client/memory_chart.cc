// In a terminal a layer is drawn by its letter; a column is the instant with the most bytes of
// those that it stands for.
#include "client/memory_chart.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/plan_text.h"
#include "client/table.h"
#include "proto/snug/bytes.h"

namespace snug::client {
namespace {

constexpr int kRows = 16;       // Characters of the picture's height.
constexpr int kAxisWidth = 10;  // Characters before it.
constexpr int kMinWidth = 20;
constexpr const char* kColours[] = {"\033[90m", "\033[34m", "\033[35m", "\033[36m",
                                    "\033[33m", "\033[32m", "\033[31m", "\033[37m"};
constexpr const char* kPlain = "\033[0m";

// Ways to keep a value in another form than its own, by letter.
constexpr std::pair<const char*, char> kForms[] = {
    {"int8", '8'}, {"int4", '4'}, {"two_bit", '2'}, {"sampled", 'S'}};

int64_t FormBytes(const v1::LiveBytes& live, const char* kind) {
  const auto found = live.form_bytes().find(kind);
  return found == live.form_bytes().end() ? 0 : found->second;
}

int64_t TotalAt(const MemoryChart& chart, size_t instant) {
  int64_t total = 0;
  for (const MemoryLayer& layer : chart.layers) total += layer.bytes[instant];
  return total;
}

// The highest of the instants that a column stands for.
size_t InstantOf(const MemoryChart& chart, int column, int columns) {
  const size_t instants = chart.backward.size(), width = static_cast<size_t>(columns);
  const size_t begin = static_cast<size_t>(column) * instants / width;
  const size_t end = std::max(begin + 1, (static_cast<size_t>(column) + 1) * instants / width);
  size_t highest = begin;
  for (size_t i = begin; i < end; ++i)
    if (TotalAt(chart, i) > TotalAt(chart, highest)) highest = i;
  return highest;
}

// The layer that `bytes` from the bottom is in, or -1.
int LayerAt(const MemoryChart& chart, size_t instant, double bytes) {
  double top = 0.0;
  for (size_t l = 0; l < chart.layers.size(); ++l) {
    top += static_cast<double>(chart.layers[l].bytes[instant]);
    if (bytes < top) return static_cast<int>(l);
  }
  return -1;
}

std::string CellText(const MemoryChart& chart, int layer, bool colour) {
  if (layer < 0) return " ";
  const std::string letter(1, chart.layers[static_cast<size_t>(layer)].letter);
  if (!colour) return letter;
  return absl::StrCat(kColours[static_cast<size_t>(layer) % std::size(kColours)], letter, kPlain);
}

}  // namespace

MemoryChart MemoryChartOf(const v1::PlanJobResponse& reply) {
  MemoryChart chart;
  if (reply.timeline().empty() || reply.plans().empty()) return chart;
  const v1::Plan& plan = reply.plans(PlanShown(reply));
  const v1::MemoryComponents& memory = plan.memory();
  chart.plan = plan.name();
  for (const v1::LiveBytes& live : reply.timeline()) chart.backward.push_back(live.backward());
  const auto add = [&](const char* name, char letter,
                       const std::function<int64_t(const v1::LiveBytes&)>& bytes_of) {
    MemoryLayer layer{.name = name, .letter = letter, .bytes = {}};
    for (const v1::LiveBytes& live : reply.timeline()) layer.bytes.push_back(bytes_of(live));
    layer.peak_bytes = *std::max_element(layer.bytes.begin(), layer.bytes.end());
    if (layer.peak_bytes > 0) chart.layers.push_back(std::move(layer));
  };
  const auto add_fixed = [&](const char* name, char letter, int64_t bytes) {
    add(name, letter, [bytes](const v1::LiveBytes&) { return bytes; });
  };
  add_fixed("context", 'c', memory.context_bytes());
  add_fixed("weights", 'W', memory.weights_bytes() + memory.adapter_bytes());
  add_fixed("gradients", 'g', memory.gradients_bytes());
  add_fixed("optimizer", 'o', memory.optimizer_bytes());
  add_fixed("inputs", 'i', memory.inputs_bytes() + memory.data_bytes());
  add("stash", 'K', [](const v1::LiveBytes& live) {
    int64_t kept = live.stash_bytes();
    for (const auto& [kind, letter] : kForms) kept -= FormBytes(live, kind);
    return kept;
  });
  for (const auto& [kind, letter] : kForms) {
    add(kind, letter, [kind = kind](const v1::LiveBytes& live) { return FormBytes(live, kind); });
  }
  add("scratch", 's', [](const v1::LiveBytes& live) { return live.scratch_bytes(); });
  add("workspace", 'w', [](const v1::LiveBytes& live) { return live.workspace_bytes(); });
  for (size_t i = 0; i < chart.backward.size(); ++i)
    chart.peak_bytes = std::max(chart.peak_bytes, TotalAt(chart, i));
  for (const v1::LiveBytes& live : reply.timeline())
    chart.host_bytes = std::max(chart.host_bytes, live.host_bytes());
  return chart;
}

void PrintMemoryChart(const MemoryChart& chart, const TextOptions& options, std::ostream& out) {
  if (chart.layers.empty()) return;
  const int width = std::max(options.columns - kAxisWidth - 3, kMinWidth);
  std::vector<size_t> instants;
  for (int column = 0; column < width; ++column)
    instants.push_back(InstantOf(chart, column, width));
  out << "live bytes of a step under " << Printable(chart.plan) << "\n";
  const double unit = static_cast<double>(chart.peak_bytes) / kRows;
  for (int row = 0; row < kRows; ++row) {
    const bool labelled = row == 0 || row == kRows / 2;
    const int64_t top = chart.peak_bytes / kRows * (kRows - row);
    std::string line = absl::StrFormat(
        "%*s |", kAxisWidth, labelled ? FormatBytes(row == 0 ? chart.peak_bytes : top) : "");
    for (size_t instant : instants)
      absl::StrAppend(&line, CellText(chart, LayerAt(chart, instant, (kRows - row - 0.5) * unit),
                                      options.colour));
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << "\n";
  }
  std::string directions;
  for (size_t instant : instants) directions += chart.backward[instant] ? '<' : '>';
  out << absl::StrFormat("%*s  ", kAxisWidth, "") << directions << "\n";
  out << absl::StrFormat("%*s  > forward, < backward\n\n", kAxisWidth, "");
  for (size_t l = chart.layers.size(); l-- > 0;) {
    const MemoryLayer& layer = chart.layers[l];
    out << "  " << CellText(chart, static_cast<int>(l), options.colour)
        << absl::StrFormat("  %-10s %s\n", layer.name, FormatBytes(layer.peak_bytes));
  }
  if (chart.host_bytes > 0)
    out << absl::StrFormat("     %-10s %s, in the host's memory\n", "offload",
                           FormatBytes(chart.host_bytes));
}

}  // namespace snug::client
