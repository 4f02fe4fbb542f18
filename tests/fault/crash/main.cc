// snug-crash [--cycles N] [--daemons K] [--seed S] [--each-hit H]: see harness.h. Prints what came
// of it; exit code 1 where something was lost, doubled or otherwise wrong, or a failpoint was hit
// too rarely.
#include <cstdio>

#include "CLI/CLI.hpp"
#include "absl/time/clock.h"
#include "tests/fault/crash/harness.h"

int main(int argc, char** argv) {
  snug::crash::Options options;
  options.seed = static_cast<uint32_t>(absl::ToUnixMicros(absl::Now()));
  CLI::App app("Kills daemons, shims and workers, and compares what is left");
  app.add_option("--cycles", options.cycles, "Cycles that count")->capture_default_str();
  app.add_option("--daemons", options.daemons, "Daemons side by side")->capture_default_str();
  app.add_option("--seed", options.seed, "Of what is random");
  app.add_option("--each-hit", options.each_hit, "How often each failpoint must be hit");
  CLI11_PARSE(app, argc, argv);
  printf("seed %u\n", options.seed);
  fflush(stdout);
  const auto summary = snug::crash::Run(options);
  if (summary.ok()) return snug::crash::Report(*summary, options.cycles, options.each_hit) ? 0 : 1;
  fprintf(stderr, "%s\n", summary.status().ToString().c_str());
  return 2;
}
