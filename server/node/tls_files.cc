#include "server/node/tls_files.h"

#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proto/snug/status_macros.h"
#include "server/node/attempt_files.h"

namespace snug::server {
namespace {

constexpr int64_t kMaxPemBytes = 1 << 20;

using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

absl::Status Wrong(absl::string_view setting, const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(setting, ": ", path, " ", what));
}

absl::StatusOr<std::unique_ptr<BIO, decltype(&BIO_free)>> Read(absl::string_view setting,
                                                               const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxPemBytes);
  if (!text.ok())
    return absl::InvalidArgumentError(absl::StrCat(setting, ": ", text.status().message()));
  std::unique_ptr<BIO, decltype(&BIO_free)> bytes(BIO_new(BIO_s_mem()), BIO_free);
  if (BIO_write(bytes.get(), text->data(), static_cast<int>(text->size())) < 0)
    return Wrong(setting, path, "is empty");
  return bytes;
}

// The first of the file.
absl::StatusOr<Certificate> ReadCertificate(absl::string_view setting, const std::string& path) {
  ASSIGN_OR_RETURN(const auto bytes, Read(setting, path));
  Certificate certificate(PEM_read_bio_X509(bytes.get(), nullptr, nullptr, nullptr), X509_free);
  if (certificate == nullptr) return Wrong(setting, path, "holds no certificate in PEM");
  return certificate;
}

// Without a passphrase: nobody is there to type it.
absl::StatusOr<Key> ReadKey(const std::string& path) {
  ASSIGN_OR_RETURN(const auto bytes, Read("tls_key", path));
  const auto no_passphrase = [](char*, int, int, void*) { return 0; };
  Key key(PEM_read_bio_PrivateKey(bytes.get(), nullptr, no_passphrase, nullptr), EVP_PKEY_free);
  if (key == nullptr) return Wrong("tls_key", path, "holds no key in PEM without a passphrase");
  return key;
}

}  // namespace

absl::Status CheckListen(absl::string_view setting, const v1::ListenConfig& config) {
  const auto missing = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(
        setting, " ", config.address(), ": ", what,
        " is missing; on TCP the daemon serves over TLS alone, and needs a certificate and a key"));
  };
  const std::string flag = absl::StrReplaceAll(setting, {{"_", "-"}});
  if (config.address().empty()) return missing(absl::StrCat("address (--", flag, ")"));
  if (config.tls_cert().empty()) return missing("tls_cert (--tls-cert)");
  if (config.tls_key().empty()) return missing("tls_key (--tls-key)");
  return absl::OkStatus();
}

absl::Status CheckTlsFiles(const v1::ListenConfig& config) {
  ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate("tls_cert", config.tls_cert()));
  ASSIGN_OR_RETURN(const Key key, ReadKey(config.tls_key()));
  if (X509_check_private_key(certificate.get(), key.get()) != 1)
    return Wrong("tls_key", config.tls_key(),
                 absl::StrCat("is not the key of the certificate in ", config.tls_cert()));
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) <= 0)
    return Wrong("tls_cert", config.tls_cert(), "has expired");
  if (config.tls_ca().empty()) return absl::OkStatus();
  return ReadCertificate("tls_ca", config.tls_ca()).status();
}

}  // namespace snug::server
