// Files that clients send, kept below the state folder for whoever sent them:
//
//   uploads/OWNER/file-ID/dataset.jsonl   what was sent, under a name that is ours
//   uploads/OWNER/file-ID/file.pb         v1::File
//   uploads/OWNER/part-SHA256             an upload that broke off, for a day
//
// A file appears whole, by a rename, or not at all. Its id is made of its name and its content, so
// that sending it once more changes nothing.
#ifndef SERVER_UPLOAD_UPLOADS_H_
#define SERVER_UPLOAD_UPLOADS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "snug/v1/files.pb.h"

namespace snug::server {

inline constexpr int64_t kMaxFileBytes = int64_t{16} << 30;
inline constexpr size_t kMaxFiles = 1000;  // Of an owner.
inline constexpr double kDiskKept = 0.05;  // Of the disk; uploads do not take it.
inline constexpr size_t kMaxFilenameBytes = 255;

// Whether it may be the id of a file: file- and 24 hexadecimal digits.
bool IsFileId(absl::string_view text);

// One that is being received. What is not finished goes with it, but where the client said what its
// hash will be.
class Reception {
 public:
  Reception(std::string folder, v1::UploadHeader header, std::string part, int fd);
  ~Reception();
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;

  // RESOURCE_EXHAUSTED: it is too large, or the disk has no room for it.
  absl::Status Append(absl::string_view content);
  // Durable. DATA_LOSS: the content has another hash than was said, and is gone.
  absl::StatusOr<v1::File> Finish();

 private:
  absl::Status Publish(const v1::File& file) const;

  const std::string folder_;
  const v1::UploadHeader header_;
  const std::string part_;
  int fd_;
  int64_t bytes_;
  bool resumable_;
};

class Uploads {
 public:
  // `dir` is made when the first file comes.
  explicit Uploads(std::string dir) : dir_(std::move(dir)) {}

  // `owner`: a principal's name.
  std::string FolderOf(const std::string& owner) const;

  // INVALID_ARGUMENT names the field; OUT_OF_RANGE: the offset is not what is there.
  absl::StatusOr<std::unique_ptr<Reception>> Begin(const std::string& owner,
                                                   const v1::UploadHeader& header) const;
  // Of an upload that broke off; 0: there is none.
  int64_t Received(const std::string& owner, const std::string& sha256) const;

  // Newest first; those of one moment by their ids.
  std::vector<v1::File> List(const std::string& owner) const;
  // NOT_FOUND: he has none of that id.
  absl::StatusOr<v1::File> Find(const std::string& owner, const std::string& id) const;
  // Where it lies: what a job's dataset becomes. NOT_FOUND as well.
  absl::StatusOr<std::string> PathOf(const std::string& owner, const std::string& id) const;
  // The same for a job that is about to be made, and by it alone the file is known to be in use.
  absl::StatusOr<std::string> PathForJob(const std::string& owner, const std::string& id) const;
  absl::Status Delete(const std::string& owner, const std::string& id) const;
  // False: a job that there is names its path, as `named` says, or one has asked for it since then.
  absl::StatusOr<bool> DeleteUnless(
      const std::string& owner, const std::string& id, absl::Time since,
      const std::function<bool(const std::string& path)>& named) const;
  // Whoever has sent something, by his name.
  std::vector<std::string> Owners() const;

 private:
  const std::string dir_;
};

}  // namespace snug::server

#endif  // SERVER_UPLOAD_UPLOADS_H_
