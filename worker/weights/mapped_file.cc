#include "worker/weights/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/files/opened_files.h"

namespace snug::weights {

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), static_cast<size_t>(bytes_));
}

void MappedFile::Release(int64_t begin, int64_t bytes) const {
  static const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t first = begin / page * page;
  madvise(const_cast<char*>(data_) + first, static_cast<size_t>(begin + bytes - first),
          MADV_DONTNEED);
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const int fd, program::OpenToRead(path));
  struct stat status;
  void* address = MAP_FAILED;
  if (fstat(fd, &status) == 0 && status.st_size > 0) {
    address = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  }
  const int error = errno;
  close(fd);
  if (address == MAP_FAILED)
    return absl::ErrnoToStatus(error, absl::StrCat("could not map ", path));
  MappedFile file;
  file.data_ = static_cast<const char*>(address);
  file.bytes_ = status.st_size;
  return file;
}

}  // namespace snug::weights
