// The one connection to the store's SQLite file. Turns SQLiteCpp's exceptions into Status; its .cc
// holds the only catch for them.
//
// Never open a second connection to the same file: SQLite before 3.51.3 can corrupt a WAL that two
// connections checkpoint at once.
#ifndef SERVER_JOB_DATABASE_H_
#define SERVER_JOB_DATABASE_H_

#include <cstdint>
#include <functional>
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
  absl::Status Run(absl::string_view sql, const std::vector<SqlValue>& values);
  absl::Status Query(absl::string_view sql, const std::function<absl::Status(const Row&)>& row);
  absl::StatusOr<int64_t> QueryInt(absl::string_view sql);

  // BEGIN IMMEDIATE, `work`, COMMIT; ROLLBACK when either fails.
  absl::Status Transaction(const std::function<absl::Status()>& work);

 private:
  explicit Database(std::unique_ptr<SQLite::Database> database);
  std::unique_ptr<SQLite::Database> database_;
};

}  // namespace snug::server

#endif  // SERVER_JOB_DATABASE_H_
