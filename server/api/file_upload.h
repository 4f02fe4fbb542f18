// A file that a client sends, as the door hands it over piece by piece.
#ifndef SERVER_API_FILE_UPLOAD_H_
#define SERVER_API_FILE_UPLOAD_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/api/audit.h"
#include "server/api/stored_bytes.h"
#include "server/upload/uploads.h"

namespace snug::server {

// Its end is a line of the audit log. Dropped before its end, it has broken off.
class FileUpload {
 public:
  // Both references outlive it.
  FileUpload(AuditLog& audit, StoredBytes& stored, Principal who,
             std::unique_ptr<Reception> reception)
      : audit_(audit), stored_(stored), who_(std::move(who)), reception_(std::move(reception)) {}
  ~FileUpload();
  FileUpload(const FileUpload&) = delete;
  FileUpload& operator=(const FileUpload&) = delete;

  // Writes to the disk. After an error it has ended, and says so again. RESOURCE_EXHAUSTED: the
  // file is too large, or the disk or his tenant's quota has no room for it.
  absl::Status Append(absl::string_view content);
  // Durable. DATA_LOSS: the content has another hash than was said, and is gone.
  absl::StatusOr<v1::File> Finish();

 private:
  void End(const absl::StatusOr<v1::File>& file);

  AuditLog& audit_;
  StoredBytes& stored_;
  const Principal who_;
  std::unique_ptr<Reception> reception_;  // None once it has ended.
  absl::Status ended_;                    // What is said from then on.
};

}  // namespace snug::server

#endif  // SERVER_API_FILE_UPLOAD_H_
