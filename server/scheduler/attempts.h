// Looking after live attempts: what their workers say, and what their silence means.
#ifndef SERVER_SCHEDULER_ATTEMPTS_H_
#define SERVER_SCHEDULER_ATTEMPTS_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/node/worker_link.h"
#include "server/scheduler/entry.h"

namespace snug::server {

struct SchedulerCore;

class Attempts {
 public:
  explicit Attempts(SchedulerCore& core) : core_(core) {}

  // Opens the link for workers.
  absl::Status Listen();
  // Workers stay, and dial again.
  void StopListening() { link_.reset(); }

  // One that an earlier life of the daemon left.
  void Adopt(Entry& entry, AttemptRecord record);
  void LookAfterAll();
  // This process did not listen for so long.
  void ForgiveSilence(absl::Duration away);

  // Tells the worker to stop.
  void TellToStop(const Entry& entry);
  // Tells the worker of the pending plan.
  void TellOfPlan(const Entry& entry);
  // To its worker; one that is not linked now is told when it says Hello.
  void Send(const Entry& entry, const v1::WorkerCommand& command);
  void CloseLink(Entry& entry);
  void OnBadMessage(Entry& entry, absl::string_view what);
  // Steps and tokens, for metrics.
  void Pause(Entry& entry, const std::string& cause);
  void Count(Entry& entry, const v1::Progress& now);

 private:
  using ConnectionId = WorkerLink::ConnectionId;
  void LookAfter(Entry& entry);
  void OnEvent(ConnectionId link, v1::WorkerEvent event);
  void OnClosed(ConnectionId link, const absl::Status& why);
  void OnHello(ConnectionId link, const v1::WorkerEvent::Hello& hello);
  void OnStep(Entry& entry, const v1::WorkerEvent::Step& step);
  void OnCheckpoint(Entry& entry, const v1::WorkerEvent::Checkpoint& checkpoint);
  void Refuse(ConnectionId link, std::string reason);

  SchedulerCore& core_;
  std::map<ConnectionId, std::string> links_;  // Welcomed connections -> job.
  absl::Duration refusal_told_;                // By SinceBoot().
  std::unique_ptr<WorkerLink> link_;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_ATTEMPTS_H_
