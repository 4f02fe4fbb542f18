// What the store was last known to hold, kept outside the database: so that a database that is
// missing, emptied, rolled back or without its WAL is told from a whole one.
//
// Written after a commit, never before: it may lag behind the database, and never runs ahead of it.
// The file is two blocks of 512 bytes, written in turn, each one line padded with spaces:
//   snug-witness 1 <instance> <sequence> <jobs> <count of writes> <SHA-256 of what stands before>
// The valid block with the higher count holds. A block that a power cut tore is not valid.
#ifndef SERVER_JOB_WITNESS_H_
#define SERVER_JOB_WITNESS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace snug::server {

struct Testimony {
  std::string instance;  // instance_uuid of the database.
  int64_t sequence = 0;  // Of its last event.
  int64_t jobs = 0;      // Rows of its table jobs.
};

class Witness {
 public:
  // Makes the file where there is none.
  static absl::StatusOr<std::unique_ptr<Witness>> Open(const std::string& path);
  ~Witness();

  // Nothing: it has seen nothing yet.
  const std::optional<Testimony>& last() const { return last_; }
  // Not synced: after a power cut it may say less than it was told, which is no contradiction.
  absl::Status Write(const Testimony& testimony);
  absl::Status Sync();

 private:
  explicit Witness(int fd) : fd_(fd) {}

  const int fd_;
  int64_t writes_ = 0;
  std::optional<Testimony> last_;
};

// DATA_LOSS that says what is missing, and the ways out, when the database `has` less than the
// witness has seen. `has`: nothing when there is no database.
absl::Status Compare(const Testimony& seen, const std::optional<Testimony>& has,
                     const std::string& database);

}  // namespace snug::server

#endif  // SERVER_JOB_WITNESS_H_
