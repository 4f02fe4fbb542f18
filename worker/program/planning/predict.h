// Everything that one attempt takes from a device, by component, before anything runs: what the
// daemon reserves and the worker's cap.
#ifndef WORKER_PROGRAM_PLANNING_PREDICT_H_
#define WORKER_PROGRAM_PLANNING_PREDICT_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/lower.h"
#include "worker/program/replay.h"

namespace snug::program {

struct Components {
  int64_t context = 0;  // The process itself, measured when the node starts.
  // Base parameters: on the CPU the file's bytes when mapped, the converted copy's when not; the
  // copy's on a GPU; of a quantised one its codes and scales.
  int64_t weights = 0;
  int64_t adapter = 0;
  int64_t gradients = 0;  // fp32, one per trained element.
  // OptimizerBytes of each parameter, where they are not on the host. On a GPU kNormBytes as well.
  int64_t optimizer = 0;
  int64_t inputs = 0;  // BatchBytes: tokens, what is trained of them, rotation tables.
  int64_t data = 0;    // DataBytes: the order of the datasets' rows, in the host's memory: not of a
                       // GPU.
  int64_t arena = 0;   // ArenaBytes of the largest of the phases: step on the worst batch,
                       // evaluation, samples, the exact step that an inexact plan is measured by.
  // Of the host's memory, beside the device's: what the plan offloads, and OptimizerBytes where
  // they are there. In no sum here.
  int64_t host = 0;
  // What the worker takes of the device's memory for the job.
  int64_t held() const { return weights + adapter + gradients + optimizer + inputs + arena; }
  int64_t total() const { return context + held() + data; }
};

// In which a GPU's driver gives memory, and counts it.
inline constexpr int64_t kGpuPageBytes = 2 << 20;
constexpr int64_t WholeGpuPages(int64_t bytes) {
  return (bytes + kGpuPageBytes - 1) / kGpuPageBytes * kGpuPageBytes;
}

// What a GPU adds up the norm of the gradients in: 1024 parts in fp64, and their sum.
inline constexpr int64_t kNormBytes = 8 * 1024 + kAlignment;

// Bytes of the batch's static buffers at a key. Each buffer is rounded up to kAlignment, as in the
// worker. A GPU's has arrays that its kernels read and a CPU's threads work out.
int64_t BatchBytes(const Program& program, const TapeKey& key, const Machine& machine = {});

// What the worker must hold on the device beside the arena. On a GPU these are the device's bytes
// alone: the host's memory there is the process's, and no more than a few pieces of bounded size
// (worker/train/trainer.h).
Components StaticComponents(const Program& program, const TapeKey& key, const Machine& machine,
                            int64_t context_bytes);

// Of the weights: those that the job only reads, and which are the same for every job over the same
// base in the same number types.
int64_t FrozenBytes(const Program& program);

// Of the arena beside `others`, for tapes that need `needed`. On a GPU, where all that is held is
// one piece of whole pages, it has what the others leave of them.
int64_t ArenaBytes(const Components& others, int64_t needed, const Machine& machine);

struct Prediction {
  Plan plan;
  Components bytes;
  LiveBytes peak;                  // The arena's composition at its peak.
  int64_t alignment = 0;           // arena - peak.total()
  double relative_work = 1.0;      // Against keep everywhere.
  double seconds = 0.0;            // Of one micro-batch, by the machine's rates.
  std::map<Stash, double> shares;  // Of the sites' bytes, by stash.
};

struct PredictOptions {
  LowerOptions lower;      // Key of the worst training batch.
  TapeKey evaluation_key;  // tokens == 0: no evaluation set; the last training batch is evaluated
                           // instead.
  TapeKey generation_key = {};  // tokens == 0: no prompts are answered at evaluations.
  int64_t context_bytes = 0;
  int64_t data_bytes = 0;  // program::DataBytes.
  // Whether plans that are not exact are measured (exact_step.h): none has an arena below that
  // step's.
  bool measures_drift = false;
};

// Lowers the plan in full and replays it.
absl::StatusOr<Prediction> Predict(const Program& program, const Plan& plan,
                                   const PredictOptions& options);

// Which plans of a job are asked for.
struct PlanList {
  bool recompute_plans = true;  // keep, recompute 1 of L, ..., recompute L of L.
  size_t most_mixes = 32;       // Of the frontier: evenly by their bytes, the smallest among them.
  // In bytes of the whole attempt: the fastest plan within each is in the list, however few mixes
  // are.
  std::vector<int64_t> limits = {};
  Fidelity fidelity = Fidelity::kExact;  // What a job lets be done to fit,
  int64_t host_bytes = 0;                // and what plans may put on the host.
};

// Fastest first, of like time the smaller first; no two alike. Those that are lowered in full
// (LoweredPlan) are left out where another is as small and as fast, but for "recompute k of L". Of
// the others bytes are those of Predict, without a tape: verify what is chosen.
absl::StatusOr<std::vector<Prediction>> PredictPlans(const Program& program,
                                                     const PredictOptions& options,
                                                     const PlanList& list);

// Lowers a prediction's plan in full and compares: an error when the tape takes other bytes.
absl::Status Verify(const Program& program, const Prediction& prediction,
                    const PredictOptions& options);

// Index of the fastest that fits, also in so much of the host's memory, or -1.
int FastestThatFits(const std::vector<Prediction>& predictions, int64_t budget_bytes,
                    int64_t host_bytes = INT64_MAX);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PLANNING_PREDICT_H_
