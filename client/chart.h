// The course of jobs as panels of lines over steps, from the metrics that their workers wrote.
#ifndef CLIENT_CHART_H_
#define CLIENT_CHART_H_

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "snug/v1/job.pb.h"
#include "snug/v1/metrics.pb.h"

namespace snug::client {

struct Series {
  int job = 0;                                    // Index into Chart::jobs.
  std::vector<std::pair<double, double>> points;  // (step, value), steps ascending.
};

struct Panel {
  std::string title;
  std::vector<Series> series;  // None is empty.
};

// Of the reserved bytes, what a job took at most; 0: not known yet.
struct MemoryBar {
  int job = 0;
  int64_t peak_bytes = 0;
  int64_t budget_bytes = 0;
};

struct Chart {
  std::vector<std::string> jobs;  // What they are called in the legend.
  std::vector<Panel> panels;      // Without those that no job has points for.
  std::vector<MemoryBar> memory;
};

// Adds a job with what it has measured. Of other series than the usual ones those of evaluations
// get panels of their own.
void AddJob(const v1::Job& job, const v1::GetMetricHistoryResponse& history, Chart& chart);

// The range of a panel's values; `low` < `high`.
struct Range {
  double low = 0.0;
  double high = 1.0;
};
Range StepsOf(const Panel& panel);
Range ValuesOf(const Panel& panel);

// Short enough for an axis: 0.0123, 2e-05, 1200.
std::string AxisText(double value);

struct TextOptions {
  int columns = 80;
  bool colour = false;
};
void PrintChart(const Chart& chart, const TextOptions& options, std::ostream& out);

// A whole SVG document.
std::string ChartSvg(const Chart& chart);

}  // namespace snug::client

#endif  // CLIENT_CHART_H_
