// A folder that is there complete or not at all: files are written into a new folder beside it,
// which is renamed at the end. Paths come from the other side of a socket and may not lead out of
// it.
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
  };

  // Refuses a `directory` that exists and is not an empty folder.
  static absl::StatusOr<OutputFolder> Create(const std::string& directory);
  ~OutputFolder();  // Removes what was not committed.
  OutputFolder(OutputFolder&& other) noexcept;
  OutputFolder& operator=(OutputFolder&&) = delete;

  absl::Status Begin(const std::string& path, int64_t bytes);  // Of a file; ends the one before.
  absl::Status Append(absl::string_view content);
  // One that has come whole already, and what stands for it, or is new.
  absl::StatusOr<std::string> Read(const std::string& path);
  absl::Status Replace(const std::string& path, const std::string& content);
  absl::Status Commit();  // All files complete, on disk, under their final name.

  const std::vector<File>& files() const { return files_; }

 private:
  OutputFolder(std::string directory, std::string partial)
      : directory_(std::move(directory)), partial_(std::move(partial)) {}
  absl::Status EndFile();

  std::string directory_;
  std::string partial_;  // Empty once committed or moved from.
  std::vector<File> files_;
  int fd_ = -1;
  int64_t written_ = 0;
};

}  // namespace snug::client

#endif  // CLIENT_OUTPUT_FOLDER_H_
