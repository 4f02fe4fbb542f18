#include "worker/checkpoint/sha256.h"

#include <cstdlib>

#include "absl/strings/escaping.h"

namespace snug::checkpoint {
namespace {

// OpenSSL fails here only without memory or without SHA-256 in the build: a hash that is not one
// must not be written down.
void Require(int one) {
  if (one != 1) std::abort();
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  Require(context_ != nullptr);
  Require(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
}

void Sha256::Update(const void* bytes, size_t count) {
  Require(EVP_DigestUpdate(context_.get(), bytes, count));
}

std::string Sha256::Finish() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  Require(EVP_DigestFinal_ex(context_.get(), digest, &size));
  return absl::BytesToHexString(std::string(reinterpret_cast<const char*>(digest), size));
}

std::string Sha256Hex(std::string_view text) {
  Sha256 hash;
  hash.Update(text.data(), text.size());
  return hash.Finish();
}

}  // namespace snug::checkpoint
