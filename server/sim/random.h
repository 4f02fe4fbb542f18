// Draws that are the same on every machine and with every standard library: the distributions of
// <random> are not.
#ifndef SERVER_SIM_RANDOM_H_
#define SERVER_SIM_RANDOM_H_

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

namespace snug::server::sim {

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}

  // In [0, 1), of 53 bits.
  double Share() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }
  double Between(double least, double most) { return least + (most - least) * Share(); }
  int64_t Whole(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(Share() * static_cast<double>(most - least + 1));
  }
  bool Chance(double probability) { return Share() < probability; }

  double Exponential(double mean) { return -mean * std::log1p(-Share()); }
  // Box and Muller.
  double Normal() {
    const double radius = std::sqrt(-2.0 * std::log1p(-Share()));
    return radius * std::cos(2.0 * std::numbers::pi * Share());
  }
  double LogNormal(double median, double sigma) { return median * std::exp(sigma * Normal()); }

 private:
  std::mt19937_64 bits_;
};

}  // namespace snug::server::sim

#endif  // SERVER_SIM_RANDOM_H_
