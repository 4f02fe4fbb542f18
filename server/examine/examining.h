// An examination while it is made: what its checks share.
#ifndef SERVER_EXAMINE_EXAMINING_H_
#define SERVER_EXAMINE_EXAMINING_H_

#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/examine/examination.h"

namespace snug::server {

class Examining {
 public:
  // All outlive it.
  Examining(JobStore& store, const Premises& premises, const Rest& rest)
      : store_(store), premises_(premises), rest_(rest) {}

  // The name of a check that begins.
  void Begin(const char* check) { result_.add_checks(check); }
  // What it finds; behind the first thousand, nothing.
  void Add(const char* check, std::string subject, std::string message);

  // `look` on the store's thread.
  absl::Status Look(const std::function<absl::Status(Database&)>& look);
  // After each piece of the work, which began then. CANCELLED: the examination was ended.
  absl::Status RestSince(absl::Time begin) const;

  const Premises& premises() const { return premises_; }
  v1::CheckStoreResponse& result() { return result_; }

 private:
  JobStore& store_;
  const Premises& premises_;
  const Rest& rest_;
  v1::CheckStoreResponse result_;
};

// Rows that must not be, by one statement of SQL each.
enum class Extent : uint8_t { kLive, kSmall, kAll };
// kLive: those about jobs that have not ended. kSmall: those, too, that read a row or two of each
// job. kAll: those, too, that read what every job has ever left.
absl::Status CheckRows(Examining& examining, Extent extent);

// What is promised on each device is within its capacity, and that of the host's memory within what
// plans may use.
absl::Status CheckPromises(Examining& examining);

// Each process of an attempt, by its mark, is of one that is open.
absl::Status CheckProcesses(Examining& examining);

// Each attempt that went on from a checkpoint went on from that one's step.
absl::Status CheckResumptions(Examining& examining);

}  // namespace snug::server

#endif  // SERVER_EXAMINE_EXAMINING_H_
