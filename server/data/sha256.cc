#include "server/data/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"

namespace snug::server {
namespace {

// Beyond 256 KiB the speed stays that of the hash: 1.7 GB/s.
constexpr size_t kReadBytes = 1 << 20;

// Fetched once: EVP_sha256() is looked up by its name at each use, which takes longer than the hash
// of a short text.
const EVP_MD* FetchedSha256() {
  static const EVP_MD* const fetched = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return fetched;
}

}  // namespace

absl::StatusOr<std::string> Sha256Open(int fd, const std::string& path, const HashWatch& watch) {
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  Sha256 digest;
  // Most files are small: what they do not fill is never touched.
  const auto buffer = std::make_unique_for_overwrite<char[]>(kReadBytes);
  int64_t done = 0;
  while (true) {
    const ssize_t got = pread(fd, buffer.get(), kReadBytes, done);
    if (got == 0) return digest.Hex();
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
    digest.Add(absl::string_view(buffer.get(), static_cast<size_t>(got)));
    done += got;
    if (watch != nullptr) RETURN_IF_ERROR(watch(done, status.st_size));
  }
}

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  EVP_DigestInit_ex(context_.get(), FetchedSha256(), nullptr);
}

void Sha256::Add(absl::string_view bytes) {
  EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

std::string Sha256::Hex() {
  unsigned char sum[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context_.get(), sum, &size);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<char*>(sum), size));
}

std::string Sha256Hex(absl::string_view text) {
  Sha256 digest;
  digest.Add(text);
  return digest.Hex();
}

absl::StatusOr<std::string> Sha256File(const std::string& path, const HashWatch& watch) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  absl::StatusOr<std::string> hex = Sha256Open(fd, path, watch);
  close(fd);
  return hex;
}

}  // namespace snug::server
