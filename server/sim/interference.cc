#include "server/sim/interference.h"

#include <array>
#include <cstddef>

namespace snug::server::sim {
namespace {

struct Point {
  double utilisation;
  double speed;
};

constexpr std::array<Point, 6> kPairs = {
    {{0.0, 1.0}, {0.5, 1.0}, {0.75, 0.985}, {1.25, 0.895}, {1.75, 0.74}, {2.0, 0.565}}};

double MeasuredSpeed(double utilisation) {
  for (size_t i = 1; i < kPairs.size(); ++i) {
    const Point &from = kPairs[i - 1], &to = kPairs[i];
    if (utilisation > to.utilisation) continue;
    const double share = (utilisation - from.utilisation) / (to.utilisation - from.utilisation);
    return from.speed + share * (to.speed - from.speed);
  }
  return kPairs.back().speed * kPairs.back().utilisation / utilisation;
}

}  // namespace

double SpeedBeside(int jobs, double utilisation, double strength) {
  if (jobs <= 1) return 1.0;
  return 1.0 / (1.0 + strength * (1.0 / MeasuredSpeed(utilisation) - 1.0));
}

}  // namespace snug::server::sim
