// SHA-256 of bytes that come in pieces. OpenSSL's, which uses the processor's own instructions.
#ifndef WORKER_CHECKPOINT_SHA256_H_
#define WORKER_CHECKPOINT_SHA256_H_

#include <openssl/evp.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace snug::checkpoint {

class Sha256 {
 public:
  Sha256();

  void Update(const void* bytes, size_t count);

  // 64 lower-case hexadecimal digits. The object is spent afterwards.
  std::string Finish();

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

std::string Sha256Hex(std::string_view text);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_SHA256_H_
