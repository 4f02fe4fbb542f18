// The one connection to the store's SQLite file. Turns SQLiteCpp's exceptions into Status; its .cc
// holds the only catch for them.
//
// Never open a second connection to the same file: SQLite before 3.51.3 can corrupt a WAL that two
// connections checkpoint at once.
#ifndef SERVER_JOB_DATABASE_H_
#define SERVER_JOB_DATABASE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>
#include "absl/strings/string_view.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace SQLite {
class Database;
class Statement;
}  // namespace SQLite

namespace snug::server {

struct Blob {
  std::string bytes;
};

using SqlValue = std::variant<int64_t, std::string, Blob>;

// One row of a result, valid during the callback.
class Row {
 public:
  explicit Row(SQLite::Statement& statement) : statement_(statement) {}
  int64_t Int(int column) const;
  std::string Text(int column) const;
  std::string Bytes(int column) const;

 private:
  SQLite::Statement& statement_;
};

class Database {
 public:
  // Codes: DATA_LOSS for a file that is damaged or no database, FAILED_PRECONDITION for a locked
  // one.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path);
  ~Database();

  absl::Status Execute(absl::string_view sql);
  // ALREADY_EXISTS when the row breaks a uniqueness rule.
  absl::Status Run(absl::string_view sql, const std::vector<SqlValue>& values);
  // Rows that the last Run has inserted, updated or deleted; not those that a trigger has.
  int64_t changes() const;
  using OnRow = std::function<absl::Status(const Row&)>;
  absl::Status Query(absl::string_view sql, const OnRow& row) { return Query(sql, {}, row); }
  absl::Status Query(absl::string_view sql, const std::vector<SqlValue>& values, const OnRow& row);
  absl::StatusOr<int64_t> QueryInt(absl::string_view sql, const std::vector<SqlValue>& values = {});

  // BEGIN IMMEDIATE, `work`, COMMIT; ROLLBACK when either fails.
  absl::Status Transaction(const std::function<absl::Status()>& work);
  // A part of a transaction: undone by itself when `work` fails, and the rest goes on.
  absl::Status Savepoint(const std::function<absl::Status()>& work);

  // Call it after the PRAGMAs: one of them takes the hook away that counts.
  void CountWalPages();
  // Pages that were in the WAL after the last commit.
  int wal_pages() const { return wal_pages_; }

 private:
  explicit Database(std::unique_ptr<SQLite::Database> database);
  // Compiled once per text: the texts are constants, so there are as many as the source has.
  SQLite::Statement& Compiled(absl::string_view sql);

  std::unique_ptr<SQLite::Database> database_;
  std::map<std::string, std::unique_ptr<SQLite::Statement>, std::less<>> compiled_;
  int wal_pages_ = 0;
};

}  // namespace snug::server

#endif  // SERVER_JOB_DATABASE_H_
