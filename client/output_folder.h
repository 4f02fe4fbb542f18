// A folder that is there complete or not at all: files are written into a folder beside it, which
// is renamed at the end. Paths come from the other side of a socket and may not lead out of it.
#ifndef CLIENT_OUTPUT_FOLDER_H_
#define CLIENT_OUTPUT_FOLDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace snug::client {

// Names joined by '/', none of them empty, "." or ".."; no leading '/', no NUL, at most 1024 bytes.
absl::Status CheckRelativePath(absl::string_view path);

class OutputFolder {
 public:
  struct File {
    std::string path;
    int64_t bytes;
    std::string sha256 = {};  // Where it was compared with what the daemon says.
  };

  // Refuses a `directory` that exists and is not an empty folder. What is not committed stays
  // beside it, in DIRECTORY.part-..., and the next one for the same `what` goes on from that.
  static absl::StatusOr<OutputFolder> Create(const std::string& directory, const std::string& what);
  ~OutputFolder();
  OutputFolder(OutputFolder&& other) noexcept;
  OutputFolder& operator=(OutputFolder&&) = delete;

  // Removes what lies there from another time and is none of these.
  absl::Status KeepOnly(const std::vector<std::string>& paths) const;
  // A file; ends the one before. The bytes of it that are there from another time, at most `bytes`.
  absl::StatusOr<int64_t> Begin(const std::string& path, int64_t bytes);
  absl::Status Append(absl::string_view content);
  // Ends the file that was begun. DATA_LOSS: it is not whole, or has another hash, and is gone.
  absl::Status Check(const std::string& sha256);
  // One that has come whole already, and what stands for it, or is new.
  absl::StatusOr<std::string> Read(const std::string& path);
  absl::Status Replace(const std::string& path, const std::string& content);
  absl::Status Commit();  // All files complete, on disk, under their final name.

  const std::vector<File>& files() const { return files_; }
  const std::string& partial() const { return partial_; }
  bool has_some() const;                     // Something would stay.
  bool filling() const { return fd_ >= 0; }  // A file that was begun has not ended.

 private:
  OutputFolder(std::string directory, std::string partial, int lock)
      : directory_(std::move(directory)), partial_(std::move(partial)), lock_(lock) {}
  absl::Status EndFile();

  std::string directory_;
  std::string partial_;  // Empty once committed or moved from.
  int lock_ = -1;        // Of the folder, against another that fills it, too.
  std::vector<File> files_;
  int fd_ = -1;
  int64_t written_ = 0;
};

}  // namespace snug::client

#endif  // CLIENT_OUTPUT_FOLDER_H_
