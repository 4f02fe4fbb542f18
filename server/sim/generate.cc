#include "server/sim/generate.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/sim/random.h"

namespace snug::server::sim {
namespace {

// The lengths are log-normal, cut at both ends; who comes brings on average `burst` jobs at once;
// how many come swings by `swing` over 24 hours. A share `light` of the jobs keeps between `least`
// and `middle` of a device busy, the others between `middle` and `most`.
struct Distributions {
  const char* name;
  double median_s, sigma, least_s, most_s;
  double burst;
  double swing;
  double light, least, middle, most;
};

constexpr double kHour = 3600.0, kDay = 24 * kHour;

// philly: median 13 min, long tail, GPUs 52 % busy on average. helios: median 206 s, mean 6,652 s
// before the cut (sigma is the root of 2 ln(6652 / 206)), users who submit in bursts. pai: median
// 23 min, 90 % below 4.5 h (sigma is ln(11.7) / 1.28), most jobs keep little of a GPU busy. small
// and saturating are ours: jobs that under-fill a device, and jobs that fill it.
constexpr Distributions kGenerators[] = {
    {"philly", 780.0, 2.20, 60.0, 2 * kDay, 1.0, 0.5, 0.5, 0.10, 0.52, 0.95},
    {"helios", 206.0, 2.64, 60.0, 2 * kDay, 3.0, 0.5, 0.4, 0.20, 0.60, 1.00},
    {"pai", 1380.0, 1.92, 60.0, 2 * kDay, 1.5, 0.3, 0.7, 0.05, 0.30, 1.00},
    {"small", 1800.0, 0.50, 60.0, 4 * kHour, 1.0, 0.0, 1.0, 0.10, 0.40, 0.40},
    {"saturating", 1800.0, 0.50, 60.0, 4 * kHour, 1.0, 0.0, 0.0, 0.90, 0.90, 1.00},
};

// Of what a planner reserves, a job holds this much; an estimator of bytes is off by this much, as
// a standard deviation of its logarithm.
constexpr double kLeastHeld = 0.97;
constexpr double kEstimateSigma = 0.15;

// So that draws of one kind do not change with those of another.
constexpr uint64_t kArrivals = 1, kRest = 2;

const Distributions* Find(const std::string& name) {
  for (const Distributions& each : kGenerators)
    if (name == each.name) return &each;
  return nullptr;
}

int64_t Micros(double seconds) { return std::llround(seconds * 1e6); }

// Gaps of 1 s on average, in bursts; StretchTo gives them their scale. The swing is over the
// fraction of a day that the time will be then, which is not known yet: over a twelfth of all jobs.
double NextGap(const Distributions& of, double progress, Random& random) {
  if (!random.Chance(1.0 / of.burst)) return 0.0;
  const double rate = 1.0 + of.swing * std::sin(2.0 * std::numbers::pi * 12.0 * progress);
  return random.Exponential(of.burst) / rate;
}

double DrawUtilisation(const Distributions& of, Random& random) {
  const bool light = random.Chance(of.light);
  return light ? random.Between(of.least, of.middle) : random.Between(of.middle, of.most);
}

const JobClass& DrawClass(const std::vector<JobClass>& classes, Random& random) {
  double sum = 0.0;
  for (const JobClass& each : classes) sum += each.weight;
  double left = random.Share() * sum;
  for (const JobClass& each : classes) {
    left -= each.weight;
    if (left < 0.0) return each;
  }
  return classes.back();
}

absl::Status BadSpec(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\": ", why));
}

}  // namespace

std::vector<std::string> GeneratorNames() {
  std::vector<std::string> names;
  for (const Distributions& each : kGenerators) names.emplace_back(each.name);
  return names;
}

absl::StatusOr<GenerateSpec> ParseGenerateSpec(const std::string& text) {
  GenerateSpec spec;
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  spec.name = parts.front();
  if (Find(spec.name) == nullptr)
    return BadSpec(text, absl::StrCat("there are ", absl::StrJoin(GeneratorNames(), ", ")));
  if (parts.size() == 1) return spec;
  for (const absl::string_view field : absl::StrSplit(parts[1], ',')) {
    const std::vector<absl::string_view> sides = absl::StrSplit(field, absl::MaxSplits('=', 1));
    bool read = false;
    if (sides.size() == 2 && sides[0] == "jobs")
      read = absl::SimpleAtoi(sides[1], &spec.jobs) && spec.jobs >= 1 && spec.jobs <= 1'000'000;
    if (sides.size() == 2 && sides[0] == "load")
      read = absl::SimpleAtod(sides[1], &spec.load) && spec.load >= 0.0 && spec.load <= 100.0;
    if (!read) return BadSpec(text, "behind the name stand jobs=1..1000000 and load=0..100");
  }
  return spec;
}

absl::StatusOr<std::vector<Arrival>> Generate(const GenerateSpec& spec, uint64_t seed) {
  const Distributions* const of = Find(spec.name);
  if (of == nullptr) return BadSpec(spec.name, "is no generator");
  Random random(4 * seed + kArrivals);
  std::vector<Arrival> arrivals;
  double now_s = 0.0;
  for (int64_t i = 0; i < spec.jobs; ++i) {
    now_s += NextGap(*of, static_cast<double>(i) / static_cast<double>(spec.jobs), random);
    const double work_s =
        std::clamp(random.LogNormal(of->median_s, of->sigma), of->least_s, of->most_s);
    arrivals.push_back({.id = absl::StrFormat("job-%07d", i),
                        .arrives_us = Micros(now_s),
                        .work_us = Micros(work_s)});
  }
  return arrivals;
}

void StretchTo(double load, size_t devices, std::vector<Arrival>& arrivals) {
  if (arrivals.empty()) return;
  int64_t first = INT64_MAX, last = 0;
  double work_us = 0.0;
  for (const Arrival& each : arrivals) {
    first = std::min(first, each.arrives_us);
    last = std::max(last, each.arrives_us);
    work_us += static_cast<double>(each.work_us);
  }
  const double span_us = load > 0.0 ? work_us / (load * static_cast<double>(devices)) : 0.0;
  const double factor = last > first ? span_us / static_cast<double>(last - first) : 0.0;
  for (Arrival& each : arrivals)
    each.arrives_us = std::llround(static_cast<double>(each.arrives_us - first) * factor);
}

std::vector<Job> JobsOf(const std::vector<Arrival>& arrivals, const std::vector<JobClass>& classes,
                        const std::string& generator, uint64_t seed) {
  const Distributions* const named = Find(generator);
  const Distributions& of = named == nullptr ? kGenerators[0] : *named;
  Random random(4 * seed + kRest);
  std::vector<Job> jobs;
  for (const Arrival& arrival : arrivals) {
    Job& job = jobs.emplace_back();
    job.id = arrival.id;
    job.arrives_us = arrival.arrives_us;
    job.work_us = arrival.work_us;
    job.plans = DrawClass(classes, random).plans;
    const double drawn = DrawUtilisation(of, random);
    job.utilisation = arrival.utilisation > 0.0 ? arrival.utilisation : drawn;
    job.held_share = random.Between(kLeastHeld, 1.0);
    job.estimate = random.LogNormal(1.0, kEstimateSigma);
  }
  return jobs;
}

}  // namespace snug::server::sim
