#include "server/job/database.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <sqlite3.h>

#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/failpoint.h"

namespace snug::server {
namespace {

// The caller of DATA_LOSS must not write to this file again: after a failed fsync the
// kernel has dropped the dirty pages.
// The last error of the system in the file that commits are written to.
int ErrnoOfWal(sqlite3* connection) {
  sqlite3_file* wal = nullptr;
  int error = 0;
  if (sqlite3_file_control(connection, "main", SQLITE_FCNTL_JOURNAL_POINTER, &wal) != SQLITE_OK ||
      wal == nullptr || wal->pMethods == nullptr)
    return 0;
  wal->pMethods->xFileControl(wal, SQLITE_FCNTL_LAST_ERRNO, &error);
  return error;
}

// SQLite says "full" of ENOSPC alone; a quota that is used up passes just so.
bool IsOverQuota(const SQLite::Exception& error, sqlite3* connection) {
  return error.getExtendedErrorCode() == SQLITE_IOERR_WRITE && connection != nullptr &&
         ErrnoOfWal(connection) == EDQUOT;
}

absl::Status ToStatus(const SQLite::Exception& error, sqlite3* connection, absl::string_view what) {
  const std::string message =
      absl::StrCat(what, ": ", error.what(), " (sqlite error ", error.getExtendedErrorCode(), ")");
  if (IsOverQuota(error, connection)) return absl::ResourceExhaustedError(message);
  switch (error.getErrorCode()) {
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(message);
    case SQLITE_IOERR:
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_CANTOPEN:
      return absl::FailedPreconditionError(message);
    case SQLITE_CONSTRAINT:
      if (error.getExtendedErrorCode() == SQLITE_CONSTRAINT_PRIMARYKEY ||
          error.getExtendedErrorCode() == SQLITE_CONSTRAINT_UNIQUE)
        return absl::AlreadyExistsError(message);
      return absl::InternalError(message);
    default:
      return absl::InternalError(message);
  }
}

template <typename Work>
absl::Status Guarded(sqlite3* connection, absl::string_view what, Work&& work) {
  try {
    return work();
  } catch (const SQLite::Exception& error) {
    return ToStatus(error, connection, what);
  }
}

void Bind(SQLite::Statement& statement, int index, const SqlValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) {
    statement.bind(index, *number);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    statement.bind(index, *text);
  } else {
    const std::string& bytes = std::get<Blob>(value).bytes;
    statement.bind(index, bytes.data(), static_cast<int>(bytes.size()));
  }
}

}  // namespace

int64_t Row::Int(int column) const { return statement_.getColumn(column).getInt64(); }

std::string Row::Text(int column) const { return statement_.getColumn(column).getString(); }

std::string Row::Bytes(int column) const {
  const SQLite::Column blob = statement_.getColumn(column);
  return std::string(static_cast<const char*>(blob.getBlob()), blob.getBytes());
}

Database::Database(std::unique_ptr<SQLite::Database> database) : database_(std::move(database)) {}

Database::~Database() = default;

void Database::CountWalPages() {
  const auto count = [](void* self, sqlite3*, const char*, int pages) {
    static_cast<Database*>(self)->wal_pages_ = pages;
    return SQLITE_OK;
  };
  sqlite3_wal_hook(database_->getHandle(), count, this);
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path) {
  std::unique_ptr<SQLite::Database> database;
  RETURN_IF_ERROR(Guarded(nullptr, absl::StrCat("opening ", path), [&] {
    database =
        std::make_unique<SQLite::Database>(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    sqlite3_db_config(database->getHandle(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    return absl::OkStatus();
  }));
  return std::unique_ptr<Database>(new Database(std::move(database)));
}

SQLite::Statement& Database::Compiled(absl::string_view sql) {
  auto found = compiled_.find(sql);
  if (found == compiled_.end()) {
    auto statement = std::make_unique<SQLite::Statement>(*database_, std::string(sql));
    found = compiled_.emplace(std::string(sql), std::move(statement)).first;
  }
  return *found->second;
}

absl::Status Database::Execute(absl::string_view sql) {
  return Guarded(database_->getHandle(), sql, [&] {
    database_->exec(std::string(sql));
    return absl::OkStatus();
  });
}

absl::Status Database::Run(absl::string_view sql, const std::vector<SqlValue>& values) {
  return Query(sql, values, [](const Row&) { return absl::OkStatus(); });
}

int64_t Database::changes() const { return database_->getChanges(); }

absl::Status Database::Query(absl::string_view sql, const std::vector<SqlValue>& values,
                             const OnRow& row) {
  return Guarded(database_->getHandle(), sql, [&] {
    SQLite::Statement& statement = Compiled(sql);
    const absl::Cleanup reset = [&] { statement.tryReset(); };
    for (size_t i = 0; i < values.size(); ++i) Bind(statement, static_cast<int>(i) + 1, values[i]);
    while (statement.executeStep()) RETURN_IF_ERROR(row(Row(statement)));
    return absl::OkStatus();
  });
}

absl::StatusOr<int64_t> Database::QueryInt(absl::string_view sql,
                                           const std::vector<SqlValue>& values) {
  int64_t value = 0;
  RETURN_IF_ERROR(Query(sql, values, [&](const Row& row) {
    value = row.Int(0);
    return absl::OkStatus();
  }));
  return value;
}

absl::Status Database::Transaction(const std::function<absl::Status()>& work) {
  RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  absl::Status status = work();
  if (status.ok() && FAILS_AT("store.commit")) status = absl::DataLossError("a failed commit");
  if (status.ok()) status = Execute("COMMIT");
  FAILPOINT("store.committed");
  // The first cause wins: SQLite may have rolled back by itself, then this fails and says nothing
  // new.
  if (!status.ok()) Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::Status Database::Savepoint(const std::function<absl::Status()>& work) {
  RETURN_IF_ERROR(Run("SAVEPOINT part", {}));
  absl::Status status = work();
  if (!status.ok()) Run("ROLLBACK TO part", {}).IgnoreError();
  const absl::Status released = Run("RELEASE part", {});
  return status.ok() ? released : status;
}

}  // namespace snug::server
