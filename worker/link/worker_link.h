// The worker's end of the link to the node: says Hello at once, so that the node knows of a worker
// that loads for long; reports, obeys. A worker outlives the daemon, so nothing here fails for
// good: when the socket breaks the link dials again, says Hello anew, and reports that were lost
// meanwhile are superseded by the next.
#ifndef WORKER_LINK_WORKER_LINK_H_
#define WORKER_LINK_WORKER_LINK_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/program/planning/memory_look.h"
#include "worker/train/attempt.h"

namespace snug::link {

// What the node has asked for. The first word wins.
enum class Command : uint8_t { kNone, kStop, kCheckpointAndStop, kExportAndStop, kRefused };

struct CheckpointReport {
  int64_t global_step = 0;
  std::string path;
  std::string manifest_sha256;
  int64_t bytes = 0;
  double seconds = 0.0;
};

struct MemoryReport {
  int64_t measured_peak_bytes = 0;
  int64_t current_bytes = 0;
  std::vector<program::MemoryLook> looks = {};
};

// A daemon that is started anew is there in less.
inline constexpr std::chrono::seconds kShortageWait{60};

// Thread-safe. Calls never block on the socket: a thread of its own sends, receives, dials and
// beats.
class WorkerLink {
 public:
  // An empty socket path gives a link that reports to nobody.
  static std::unique_ptr<WorkerLink> Dial(const train::AttemptOptions& attempt);
  virtual ~WorkerLink() = default;

  // Also what Hello says from now on when the link dials again.
  virtual void ReportProgress(const train::TrainingProgress& progress,
                              const MemoryReport& memory) = 0;
  virtual void ReportCheckpoint(const CheckpointReport& checkpoint) = 0;
  // Waits up to a second for the report to be sent: the process is about to exit.
  virtual void ReportResult(const train::AttemptResult& result) = 0;
  virtual Command command() const = 0;
  // The newest order that nobody has taken yet.
  virtual std::optional<train::PlanOrder> TakePlanOrder() = 0;
  // Also what Hello says of it from now on. What memory was before is not reported any more.
  virtual void AnswerPlanOrder(const train::PlanAnswer& answer) = 0;
  // For a step that does not fit: the order under which it is to be made again. Waits for it, up to
  // kShortageWait. Nothing: there is no smaller plan, or the attempt is to stop, or nobody answers.
  virtual std::optional<train::PlanOrder> AskForSmallerPlan(const train::Shortage& shortage) = 0;
};

}  // namespace snug::link

#endif  // WORKER_LINK_WORKER_LINK_H_
