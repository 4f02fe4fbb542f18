// An examination while it is made: what its checks share.
//
// A read runs on the store's thread, where commits wait behind it. So a table that grows with the
// jobs is never read at once: LookThrough reads it range by range.
#ifndef SERVER_EXAMINE_EXAMINING_H_
#define SERVER_EXAMINE_EXAMINING_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/data/sha256.h"
#include "server/examine/examination.h"

namespace snug::server {

// A column by which its table is read in parts. It has an index, or is the key.
struct Column {
  std::string table, name;
};

// The first and the last value of a part: ?1 and ?2 of "COLUMN BETWEEN ?1 AND ?2". Numbers are
// given as their digits, which SQLite compares as numbers where the column has numbers.
using Range = std::vector<SqlValue>;
using RangeLook = std::function<absl::Status(Database&, const Range&)>;

class Examining {
 public:
  // All outlive it.
  Examining(JobStore& store, const Premises& premises, const Rest& rest)
      : store_(store), premises_(premises), rest_(rest) {}

  // The name of a check that begins.
  void Begin(const char* check) { result_.add_checks(check); }
  // What it finds; behind the first thousand, nothing.
  void Add(const char* check, std::string subject, std::string message);
  // The end of the check that has begun last. DATA_LOSS is a finding of it, and the next check can
  // be made; any other error ends the examination.
  absl::Status NoteDamage(const absl::Status& status);

  // `look` on the store's thread.
  absl::Status Look(const std::function<absl::Status(Database&)>& look);
  // `look` at each part of the column's table, on the store's thread. A part has as many rows as
  // that takes some milliseconds for, and the rows that have the same value as its last one. After
  // each part `beside` runs on the caller's thread.
  absl::Status LookThrough(const Column& column, const RangeLook& look,
                           const std::function<absl::Status()>& beside = nullptr);
  absl::StatusOr<int64_t> Count(const char* sql, const std::vector<SqlValue>& values = {});

  // After each piece of the work, which began then. CANCELLED: the examination was ended.
  absl::Status RestSince(absl::Time begin) const;
  // For what reads a file: it rests after each megabyte.
  HashWatch RestsWithinFiles() const;
  bool paced() const { return rest_ != nullptr; }

  const Premises& premises() const { return premises_; }
  v1::CheckStoreResponse& result() { return result_; }

 private:
  JobStore& store_;
  const Premises& premises_;
  const Rest& rest_;
  v1::CheckStoreResponse result_;
};

// Rows that must not be, by one statement of SQL each: about jobs that have not ended, which are
// few, and about all.
absl::Status CheckLiveRows(Examining& examining);
absl::Status CheckRows(Examining& examining);

// No row names a row of another table that there is not.
absl::Status CheckReferences(Examining& examining);

// What the events say of each job, and that none of them is missing.
absl::Status CheckHistories(Examining& examining);

// What is promised on each device is within its capacity, and that of the host's memory within what
// plans may use.
absl::Status CheckPromises(Examining& examining);

// Each process of an attempt, by its mark, is of one that is open.
absl::Status CheckProcesses(Examining& examining);

// Each attempt that went on from a checkpoint went on from that one's step and place in the data.
absl::Status CheckResumptions(Examining& examining);

// Every checkpoint that is there, of whatever job, is what was stored; the newest one of a job that
// has not ended is there.
absl::Status CheckCheckpoints(Examining& examining);

}  // namespace snug::server

#endif  // SERVER_EXAMINE_EXAMINING_H_
