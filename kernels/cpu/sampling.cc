// Column-row sampling on the CPU: checks, and the selection, on one thread: its few passes over T
// scores are nothing beside the norms of T rows. Gathering is divided among threads.
#include "kernels/sampling.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"
#include "kernels/sampling_rules.h"

namespace snug::kernels {

SNUG_VERSIONS(GatherScaledRowsRange, void(const GatherScaledRowsParams&, Range));
namespace {

using sampling::Mass;

struct Workspace {
  uint64_t* cumulated;  // Of the scores that are not certain; winner takes all.
  uint32_t* scores;
  explicit Workspace(const SampleRowsParams& p)
      : cumulated(static_cast<uint64_t*>(p.workspace)),
        scores(p.kind == SamplingKind::kWinnerTakeAll ? reinterpret_cast<uint32_t*>(cumulated + p.T)
                                                      : static_cast<uint32_t*>(p.workspace)) {}
};

bool Masked(const SampleRowsParams& p, int64_t t) { return p.mask != nullptr && p.mask[t] == 0; }

uint32_t BitsOfScore(const SampleRowsParams& p, int64_t t, bool with_surrogate) {
  if (Masked(p, t)) return 0;
  return sampling::OrderedBits(with_surrogate ? p.norms[t] * p.surrogate[t] : p.norms[t]);
}

uint32_t LargestBits(const SampleRowsParams& p, bool with_surrogate) {
  uint32_t largest = 0;
  for (int64_t t = 0; t < p.T; ++t) {
    const uint32_t bits = BitsOfScore(p, t, with_surrogate);
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

Mass MassAbove(const SampleRowsParams& p, const uint32_t* scores, uint64_t limit) {
  Mass above;
  for (int64_t t = 0; t < p.T; ++t) {
    const bool counts = scores[t] > limit;
    above.count += counts ? 1 : 0;
    above.sum += counts ? scores[t] : 0;
  }
  return above;
}

// Fills in the scores as integers; returns the largest.
uint32_t FillScores(const SampleRowsParams& p, uint32_t* scores) {
  bool with_surrogate = p.surrogate != nullptr;
  uint32_t largest = with_surrogate ? LargestBits(p, true) : 0;
  if (largest == 0) {
    with_surrogate = false;
    largest = LargestBits(p, false);
  }
  Mass all;
  for (int64_t t = 0; t < p.T; ++t) {
    scores[t] = sampling::Quantize(BitsOfScore(p, t, with_surrogate), largest);
    all.count += Masked(p, t) ? 0 : 1;
    all.sum += scores[t];
  }
  const uint32_t least = sampling::FloorOf(p.floor, all);
  uint32_t highest = 0;
  for (int64_t t = 0; t < p.T; ++t) {
    if (scores[t] < least && !Masked(p, t)) scores[t] = least;
    highest = scores[t] > highest ? scores[t] : highest;
  }
  return highest;
}

struct Selection {
  uint64_t limit;  // Certain are the scores above it.
  int64_t certain;
  sampling::Draw draw;
};

Selection Select(const SampleRowsParams& p, const uint32_t* scores, uint32_t largest) {
  sampling::CertainSearch search(p.k, largest, MassAbove(p, scores, 0));
  while (!search.done()) search.Tell(MassAbove(p, scores, search.at()));
  const uint64_t certain = search.certain();
  return {search.limit(),
          static_cast<int64_t>(certain),
          {static_cast<uint64_t>(p.k) - certain, search.rest()}};
}

void Put(const SampleRowsParams& p, int64_t slot, int64_t row, float weight) {
  p.index[slot] = static_cast<int32_t>(row);
  p.weights[slot] = weight;
}

// Returns the slots it has filled.
int64_t TakeSystematically(const SampleRowsParams& p, const uint32_t* scores, const Selection& s) {
  const uint64_t start = sampling::UniformBelow(s.draw.rest, RandomBlock(p.site, 0), 0);
  sampling::Crossing before = {0, start};
  int64_t slot = 0;
  for (int64_t t = 0; t < p.T; ++t) {
    if (scores[t] > s.limit) {
      Put(p, slot++, t, 1.0f);
    } else if (s.draw.rest > 0) {
      const bool takes = sampling::Takes(before, scores[t], s.draw);
      if (takes) Put(p, slot++, t, s.draw.Weight(scores[t]));
      before.remainder += scores[t] * s.draw.draws - (takes ? s.draw.rest : 0);
    }
  }
  return slot;
}

int64_t DrawWithReplacement(const SampleRowsParams& p, const Workspace& w, const Selection& s) {
  int64_t slot = 0;
  uint64_t cumulated = 0;
  for (int64_t t = 0; t < p.T; ++t) {
    const bool certain = w.scores[t] > s.limit;
    if (certain) Put(p, slot++, t, 1.0f);
    cumulated += certain ? 0 : w.scores[t];
    w.cumulated[t] = cumulated;
  }
  if (s.draw.rest == 0) return slot;
  for (uint64_t i = 0; i < s.draw.draws; ++i) {
    const Random4 random = RandomBlock(p.site, 1 + i / 2);
    const uint64_t point = sampling::UniformBelow(s.draw.rest, random, static_cast<int>(i % 2));
    int64_t below = -1, row = p.T - 1;  // The first row whose cumulated score is beyond the point.
    while (row - below > 1) {
      const int64_t middle = below + (row - below) / 2;
      (w.cumulated[middle] > point ? row : below) = middle;
    }
    Put(p, slot++, row, s.draw.Weight(w.scores[row]));
  }
  return slot;
}

Error CheckSampling(const SampleRowsParams& p) {
  cpu::Check check(p.T, 1, "", "T");
  check.That(p.T <= kMaxSampledRows, ErrorCode::kBadShape, "T")
      .That(p.k >= (p.T == 0 ? 0 : 1) && p.k <= p.T, ErrorCode::kBadShape, "k")
      .That(p.kind <= SamplingKind::kWinnerTakeAll, ErrorCode::kBadValue, "kind")
      .PerRow(p.norms, "norms")
      .PerRow(p.index, "index")
      .PerRow(p.weights, "weights")
      .That(p.floor >= 0.0f && p.floor < 1.0f, ErrorCode::kBadValue, "floor")
      .Draws(p.site, 0, 1);
  if (p.k < p.T) check.Workspace(p.workspace);
  return check.error();
}

}  // namespace

Error SampleRows(const SampleRowsParams& p, Stream stream) {
  if (const Error error = CheckSampling(p); !error.ok()) return error;
  if (stream != nullptr) return cpu::OnStream(cuda::SampleRows, p, stream);
  if (p.T == 0) return {};
  if (p.k == p.T) {
    for (int64_t t = 0; t < p.T; ++t) Put(p, t, t, 1.0f);
    if (p.certain != nullptr) *p.certain = p.T;
    return {};
  }
  const Workspace w(p);
  const uint32_t largest = FillScores(p, w.scores);
  const Selection s = Select(p, w.scores, largest);
  int64_t slot = p.kind == SamplingKind::kSystematic ? TakeSystematically(p, w.scores, s)
                                                     : DrawWithReplacement(p, w, s);
  const int64_t last = slot == 0 ? 0 : p.index[slot - 1];
  while (slot < p.k) Put(p, slot++, last, 0.0f);
  if (p.certain != nullptr) *p.certain = s.certain;
  return {};
}

Error GatherScaledRows(const GatherScaledRowsParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Table(p.x, "x", p.x_stride, "x_stride")
      .That(p.x_rows >= 1 || p.N == 0, ErrorCode::kBadShape, "x_rows")
      .PerRow(p.index, "index")
      .PerRow(p.weights, "weights")
      .Rows(p.y, "y", p.y_stride, "y_stride");
  if (check.ok() && stream == nullptr) {
    check.That(cpu::IndicesInRange(p.index, IndexType::kI32, p.N, p.x_rows), ErrorCode::kBadIndex,
               "index");
  }
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::GatherScaledRows, p, stream);
  cpu::ParallelFor(p.N, 2 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { GatherScaledRowsRange(p, rows); });
  return {};
}

}  // namespace snug::kernels
