#include "server/sim/command.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"
#include "server/sim/generate.h"
#include "server/sim/read_trace.h"
#include "server/sim/report.h"

namespace snug::server::sim {
namespace {

constexpr int kUsage = 64;
constexpr size_t kMostDevices = 64;

struct Arguments {
  std::string trace;
  std::string generate;
  std::string policy = "snug";
  uint64_t seed = 1;
  std::string devices = "8xh100";
  std::string output = "table";
  std::optional<double> load;
  double interference = 1.0;
  bool classes = false;
};

struct Devices {
  DeviceKind kind;
  std::vector<SimDevice> devices;
};

void Describe(CLI::App& app, Arguments& arguments) {
  auto* trace =
      app.add_option("--trace", arguments.trace, "A file in Philly's, Helios' or PAI's format");
  app.add_option("--generate", arguments.generate,
                 absl::StrCat("NAME[:jobs=N,load=L]; NAME is one of ",
                              absl::StrJoin(GeneratorNames(), ", ")))
      ->excludes(trace);
  app.add_option("--policy", arguments.policy,
                 absl::StrCat(absl::StrJoin(PolicyNames(), ", "), " or all"));
  app.add_option("--seed", arguments.seed, "Of all draws; equal seeds give equal runs");
  app.add_option("--devices", arguments.devices,
                 "COUNTxKIND, or COUNTxBYTES of what is as fast as an h100: 8xh100, 4x40GiB");
  app.add_option("--load", arguments.load,
                 "Move the arrivals so that this share of the devices would be busy, had each job "
                 "one alone; 0: all come at once. Default: as the trace has them")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--interference", arguments.interference,
                 "How strong it is: 0.5 is half of what was measured, 2 twice")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--output", arguments.output)->check(CLI::IsMember({"json", "table"}));
  app.add_flag("--classes", arguments.classes, "Print what the jobs train, with their plans, only");
}

absl::StatusOr<Devices> ParseDevices(const std::string& text) {
  const std::vector<std::string> sides = absl::StrSplit(text, absl::MaxSplits('x', 1));
  size_t count = 0;
  if (sides.size() != 2 || !absl::SimpleAtoi(sides[0], &count) || count < 1 || count > kMostDevices)
    return absl::InvalidArgumentError(absl::StrCat("--devices ", text,
                                                   ": COUNTxKIND or COUNTxBYTES"
                                                   ", of 1 to ",
                                                   kMostDevices, " devices"));
  Devices devices;
  int64_t capacity = 0;
  for (const DeviceKind& kind : GpuKinds()) {
    if (sides[1] == kind.name || (capacity == 0 && std::string("h100") == kind.name))
      devices.kind = kind;
    if (sides[1] == kind.name) capacity = kind.total_bytes - kGpuReserveBytes;
  }
  if (capacity == 0) {
    ASSIGN_OR_RETURN(capacity, ParseBytes(sides[1]));
  }
  for (size_t i = 0; i < count; ++i)
    devices.devices.push_back({.name = absl::StrCat("gpu:", i), .capacity_bytes = capacity});
  return devices;
}

absl::StatusOr<Trace> TraceFor(const Arguments& arguments, size_t devices) {
  Trace trace;
  std::optional<double> load = arguments.load;
  if (!arguments.trace.empty()) {
    ASSIGN_OR_RETURN(trace, ReadTrace(arguments.trace));
  } else {
    ASSIGN_OR_RETURN(const GenerateSpec spec, ParseGenerateSpec(arguments.generate));
    ASSIGN_OR_RETURN(trace.arrivals, Generate(spec, arguments.seed));
    trace.format = spec.name;
    if (!load) load = spec.load;
  }
  if (load) StretchTo(*load, devices, trace.arrivals);
  return trace;
}

// Of what comes, the share of the devices that it would keep busy, had each job one alone.
double LoadOf(const std::vector<Job>& jobs, size_t devices) {
  int64_t first = INT64_MAX, last = 0;
  double work_us = 0.0;
  for (const Job& job : jobs) {
    first = std::min(first, job.arrives_us);
    last = std::max(last, job.arrives_us);
    work_us += static_cast<double>(job.work_us);
  }
  if (last <= first) return 0.0;
  const double span_us = static_cast<double>(last - first) * static_cast<double>(devices);
  return std::round(work_us / span_us * 1e4) / 1e4;
}

absl::Status Simulate(const Arguments& arguments, std::ostream& out) {
  ASSIGN_OR_RETURN(const Devices devices, ParseDevices(arguments.devices));
  const int64_t capacity = devices.devices.front().capacity_bytes;
  ASSIGN_OR_RETURN(const std::vector<JobClass> classes, PlanClasses(devices.kind, capacity));
  if (arguments.classes) {
    PrintClasses(classes, out);
    return absl::OkStatus();
  }
  const size_t count = devices.devices.size();
  ASSIGN_OR_RETURN(const Trace trace, TraceFor(arguments, count));
  const std::vector<Job> jobs = JobsOf(trace.arrivals, classes, trace.format, arguments.seed);
  std::vector<std::string> policies = {arguments.policy};
  if (arguments.policy == "all") policies = PolicyNames();
  std::vector<Report> reports;
  for (const std::string& name : policies) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Policy> policy,
                     PolicyNamed(name, {.interference = arguments.interference}));
    Simulation simulation(jobs, devices.devices, *policy, {.interference = arguments.interference});
    Report report{.source = arguments.trace.empty() ? arguments.generate : arguments.trace,
                  .policy = name,
                  .seed = arguments.seed,
                  .devices = arguments.devices,
                  .device_count = count,
                  .load = LoadOf(jobs, count),
                  .interference = arguments.interference,
                  .left_out = trace.left_out};
    ASSIGN_OR_RETURN(report.outcome, simulation.Run());
    if (arguments.output == "json") out << ToJson(report) << "\n";
    reports.push_back(std::move(report));
  }
  if (arguments.output == "table") PrintTable(reports, out);
  return absl::OkStatus();
}

}  // namespace

int RunCommand(int argc, char** argv, std::ostream& out, std::ostream& err) {
  CLI::App app("Simulates how jobs share devices: the daemon's own decisions on a virtual clock.");
  Arguments arguments;
  Describe(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error, out, err) == 0 ? 0 : kUsage;
  }
  if (arguments.trace.empty() && arguments.generate.empty() && !arguments.classes) {
    err << "snug-sim: --trace or --generate says which jobs come\n";
    return kUsage;
  }
  const absl::Status done = Simulate(arguments, out);
  if (done.ok()) return 0;
  err << "snug-sim: " << done.message() << "\n";
  return absl::IsInvalidArgument(done) ? kUsage : 1;
}

}  // namespace snug::server::sim
