#include "client/file_hash.h"

#include <openssl/evp.h>
#include <unistd.h>

#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

constexpr size_t kChunkBytes = 512 << 10;

class Digest {
 public:
  bool Add(absl::string_view bytes) {
    good_ = good_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1;
    return good_;
  }
  absl::StatusOr<std::string> Hex(const std::string& name) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int bytes = 0;
    if (!good_ || EVP_DigestFinal_ex(context_.get(), digest, &bytes) != 1)
      return absl::InternalError(absl::StrCat("cannot hash ", name));
    return absl::BytesToHexString({reinterpret_cast<const char*>(digest), bytes});
  }

 private:
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_{EVP_MD_CTX_new(),
                                                                    &EVP_MD_CTX_free};
  bool good_ = EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1;
};

}  // namespace

absl::Status ReadFrom(int fd, int64_t offset, const std::string& name,
                      const std::function<bool(absl::string_view)>& take) {
  std::string chunk(kChunkBytes, 0);
  while (true) {
    const ssize_t got = pread(fd, chunk.data(), chunk.size(), offset);
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", name));
    if (got == 0 || !take(absl::string_view(chunk).substr(0, static_cast<size_t>(got))))
      return absl::OkStatus();
    offset += got;
  }
}

absl::StatusOr<std::string> Sha256OfFile(int fd, const std::string& name) {
  Digest digest;
  RETURN_IF_ERROR(
      ReadFrom(fd, 0, name, [&](absl::string_view chunk) { return digest.Add(chunk); }));
  return digest.Hex(name);
}

absl::StatusOr<std::string> Sha256Of(absl::string_view text) {
  Digest digest;
  digest.Add(text);
  return digest.Hex("a text");
}

}  // namespace snug::client
