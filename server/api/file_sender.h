// A file of a job's, or a range of it, as chunks; and the hash of all of it, whatever is sent.
#ifndef SERVER_API_FILE_SENDER_H_
#define SERVER_API_FILE_SENDER_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/api/message_source.h"
#include "server/artifact/file_hashes.h"
#include "server/artifact/output.h"
#include "server/data/sha256.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

struct FileRange {
  int64_t offset = 0;
  int64_t length = 0;  // 0: as many bytes as there are.
};

class FileSender {
 public:
  // OUT_OF_RANGE: the file has not so many bytes. DATA_LOSS: it has other bytes than it was listed
  // with.
  static absl::StatusOr<std::unique_ptr<FileSender>> Open(const std::string& dir,
                                                          const OutputFile& file, FileRange range,
                                                          FileHashes& hashes);
  ~FileSender();
  FileSender(const FileSender&) = delete;
  FileSender& operator=(const FileSender&) = delete;

  // A chunk; or nothing yet, while bytes that are not sent are hashed, some milliseconds' worth
  // with each call; or the end. The first chunk says what file it is, the last one has its hash.
  absl::StatusOr<Next<v1::FileChunk>> Pull();

 private:
  FileSender(int fd, OutputFile file, FileRange range, FileHashes& hashes);
  absl::StatusOr<Next<v1::FileChunk>> Send();
  absl::StatusOr<Next<v1::FileChunk>> HashUpTo(int64_t end);
  absl::StatusOr<std::string> Read(int64_t bytes);
  // Adds the hash where it is known now; then the file is done.
  void Conclude(v1::FileChunk& chunk);

  const int fd_;
  const OutputFile file_;
  const int64_t begin_, end_;  // Of what is sent.
  FileHashes& hashes_;
  std::optional<FileState> state_;    // As it was opened.
  std::optional<std::string> known_;  // The hash.
  Sha256 digest_;                     // Of all before position_, where the hash is not known.
  int64_t position_ = 0;
  bool begun_ = false;
  bool done_ = false;
};

}  // namespace snug::server

#endif  // SERVER_API_FILE_SENDER_H_
