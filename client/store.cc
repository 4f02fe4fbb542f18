// backup, doctor: the daemon's store as a whole.
#include <fcntl.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/errors.h"
#include "client/json.h"
#include "client/table.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

// Every byte of every output and checkpoint is read.
constexpr absl::Duration kExaminationTakesAtMost = absl::Hours(24);

absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& file) {
  while (!bytes.empty()) {
    const ssize_t wrote = write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", file));
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return absl::OkStatus();
}

// The whole stream into the file; the bytes that there are.
absl::StatusOr<int64_t> Receive(Connection& connection, int fd, const std::string& file) {
  grpc::ClientContext context;
  const auto reader = connection.stub().BackupStore(&context, v1::BackupStoreRequest());
  v1::FileChunk chunk;
  int64_t announced = -1, received = 0;
  absl::Status written;
  while (written.ok() && reader->Read(&chunk)) {
    if (!chunk.path().empty()) announced = chunk.file_bytes();
    received += static_cast<int64_t>(chunk.content().size());
    written = WriteAll(fd, chunk.content(), file);
  }
  if (!written.ok()) context.TryCancel();
  const grpc::Status status = reader->Finish();
  RETURN_IF_ERROR(written);
  if (!status.ok()) return ToStatus(status);
  if (received != announced)
    return absl::DataLossError(
        absl::StrCat("the backup has ended at ", received, " of ", announced, " bytes"));
  if (fsync(fd) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", file));
  return received;
}

}  // namespace

absl::StatusOr<int> BackUp(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  const int fd = open(line.file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", line.file));
  const absl::Cleanup end = [fd] { close(fd); };
  const absl::StatusOr<int64_t> bytes = Receive(connection, fd, line.file);
  if (!bytes.ok()) {
    unlink(line.file.c_str());
    return bytes.status();
  }
  if (line.output == Output::kJson)
    terminal.out << JsonText(Json::object({{"file", line.file}, {"bytes", absl::StrCat(*bytes)}}));
  else
    terminal.out << Printable(line.file) << "  " << FormatBytes(*bytes) << "\n";
  return kExitOk;
}

absl::StatusOr<int> Examine(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  ASSIGN_OR_RETURN(const v1::CheckStoreResponse result,
                   connection.Call(&v1::FineTuning::Stub::CheckStore, v1::CheckStoreRequest(),
                                   kExaminationTakesAtMost));
  const int code = result.findings().empty() ? kExitOk : kExitError;
  if (line.output == Output::kJson) {
    terminal.out << JsonText(ToJson(result));
    return code;
  }
  for (const auto& finding : result.findings())
    terminal.out << finding.check() << ": " << Printable(finding.subject()) << ": "
                 << Printable(finding.message()) << "\n";
  terminal.out << result.checks_size() << " checks of " << result.jobs() << " jobs and "
               << result.events()
               << " events: " << (result.findings().empty() ? "all is well" : "see above") << "\n";
  return code;
}

}  // namespace snug::client
