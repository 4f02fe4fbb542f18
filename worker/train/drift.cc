#include "worker/train/drift.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "proto/snug/status_macros.h"
#include "worker/execute/host_copy.h"

namespace snug::train {

bool DriftSchedule::IsDue(int64_t step) const {
  if (every <= 0 || step < std::min(first + 1, last)) return false;
  return measured == 0 || step - measured >= every;
}

void DriftSums::Sums::Add(const float* inexact, const float* exact, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double g = inexact[i], wanted = exact[i];
    inexact_squares += g * g;
    exact_squares += wanted * wanted;
    products += g * wanted;
    difference_squares += (g - wanted) * (g - wanted);
  }
}

void DriftSums::Sums::operator+=(const Sums& other) {
  inexact_squares += other.inexact_squares;
  exact_squares += other.exact_squares;
  products += other.products;
  difference_squares += other.difference_squares;
}

// The host has the same rows of the inexact one as of the exact one, where it has to copy them.
absl::Status DriftSums::Add(execute::Device& device, int32_t parameter,
                            const execute::View& inexact, const execute::View& exact) {
  const uint32_t kinds = kinds_[static_cast<size_t>(parameter)];
  if (kinds == 0) return absl::OkStatus();
  Sums found;
  std::vector<float> beside;
  absl::Status copied;
  const auto add = [&](const execute::View& rows, int64_t first) {
    const execute::View same = inexact.Rows(first, rows.rows);
    const float* there = same.as<float>();
    if (!device.host_reads_memory()) {
      beside.resize(static_cast<size_t>(rows.elements()));
      copied.Update(execute::CopyMemory(device, there, same.bytes(), beside.data()));
      there = beside.data();
    }
    found.Add(there, rows.as<float>(), rows.elements());
  };
  RETURN_IF_ERROR(execute::ReadRows(device, exact, add));
  RETURN_IF_ERROR(copied);
  for (size_t kind = 0; kind < sums_.size(); ++kind)
    if ((kinds >> kind & 1) != 0) sums_[kind] += found;
  return absl::OkStatus();
}

DriftByKind DriftSums::Kinds() const {
  DriftByKind kinds;
  for (size_t kind = 0; kind < sums_.size(); ++kind) {
    const Sums& sums = sums_[kind];
    if (!(sums.exact_squares > 0.0) || !std::isfinite(sums.inexact_squares) ||
        !std::isfinite(sums.exact_squares))
      continue;
    const double norms = std::sqrt(sums.inexact_squares) * std::sqrt(sums.exact_squares);
    KindDrift& drift = kinds[program::RowOf(static_cast<program::Stash>(kind)).name];
    // Rounding may take it beyond 1.
    drift.cosine = norms > 0.0 ? std::clamp(sums.products / norms, -1.0, 1.0) : 0.0;
    drift.relative_error = std::sqrt(sums.difference_squares) / std::sqrt(sums.exact_squares);
  }
  return kinds;
}

}  // namespace snug::train
