#include "server/sim/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/str_format.h"
#include "proto/snug/bytes.h"

namespace snug::server::sim {
namespace {

double MeanOf(const std::vector<double>& values) {
  if (values.empty()) return 0.0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::vector<double> Sorted(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values;
}

double Ratio(double part, double whole) { return whole > 0.0 ? part / whole : 0.0; }

}  // namespace

double Quantile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0.0;
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  const auto index = static_cast<size_t>(std::max(rank, 1.0)) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

std::string ToJson(const Report& report) {
  const Outcome& outcome = report.outcome;
  const std::vector<double> completion = Sorted(outcome.completion_s);
  const double device_s = outcome.makespan_s * static_cast<double>(report.device_count);
  return nlohmann::ordered_json{{"source", report.source},
                                {"policy", report.policy},
                                {"seed", report.seed},
                                {"devices", report.devices},
                                {"load", report.load},
                                {"interference", report.interference},
                                {"jobs", outcome.jobs},
                                {"left_out", report.left_out},
                                {"ended", outcome.ended},
                                {"refused", outcome.refused},
                                {"makespan_s", outcome.makespan_s},
                                {"completion_mean_s", MeanOf(completion)},
                                {"completion_p50_s", Quantile(completion, 0.5)},
                                {"completion_p99_s", Quantile(completion, 0.99)},
                                {"wait_mean_s", MeanOf(outcome.wait_s)},
                                {"jobs_per_device", Ratio(outcome.job_s, outcome.busy_device_s)},
                                {"busy_share", Ratio(outcome.busy_device_s, device_s)},
                                {"squeezes", outcome.squeezes},
                                {"relaxes", outcome.relaxes},
                                {"oom_requeues", outcome.oom_requeues},
                                {"starved", outcome.starved},
                                {"events", outcome.events},
                                {"digest", absl::StrFormat("%016x", outcome.digest)}}
      .dump();
}

void PrintTable(const std::vector<Report>& reports, std::ostream& out) {
  out << absl::StrFormat("%-10s %11s %11s %11s %11s %9s %8s %8s %8s %7s %7s\n", "POLICY",
                         "MAKESPAN h", "MEAN s", "P99 s", "WAIT s", "JOBS/DEV", "SQUEEZES",
                         "RELAXES", "REQUEUES", "STARVED", "REFUSED");
  for (const Report& report : reports) {
    const Outcome& outcome = report.outcome;
    const std::vector<double> completion = Sorted(outcome.completion_s);
    out << absl::StrFormat("%-10s %11.2f %11.0f %11.0f %11.0f %9.2f %8d %8d %8d %7d %7d\n",
                           report.policy, outcome.makespan_s / 3600.0, MeanOf(completion),
                           Quantile(completion, 0.99), MeanOf(outcome.wait_s),
                           Ratio(outcome.job_s, outcome.busy_device_s), outcome.squeezes,
                           outcome.relaxes, outcome.oom_requeues, outcome.starved, outcome.refused);
  }
}

void PrintClasses(const std::vector<JobClass>& classes, std::ostream& out) {
  out << absl::StrFormat("%-22s %6s %6s %12s %9s %12s %9s\n", "CLASS", "WEIGHT", "PLANS", "FASTEST",
                         "STEP s", "SMALLEST", "SLOWER");
  for (const JobClass& each : classes) {
    const PlanOption& fastest = each.plans->front();
    const PlanOption& smallest = *std::min_element(
        each.plans->begin(), each.plans->end(),
        [](const PlanOption& a, const PlanOption& b) { return a.bytes < b.bytes; });
    out << absl::StrFormat("%-22s %6.1f %6d %12s %9.3f %12s %8.2fx\n", each.name, each.weight,
                           each.plans->size(), FormatBytes(fastest.bytes), fastest.seconds,
                           FormatBytes(smallest.bytes), smallest.seconds / fastest.seconds);
  }
}

}  // namespace snug::server::sim
