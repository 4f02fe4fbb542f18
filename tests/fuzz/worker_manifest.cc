// A checkpoint's MANIFEST.json as a worker reads it. The first byte says whether the rest is the
// whole text, or a text that still lacks the line with its hash, without which nothing is believed.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/sha256.h"

namespace {

// The end of a manifest, as manifest.cc describes it.
std::string Sealed(const std::string& body) {
  return absl::StrCat(body, ",\n  \"sha256\": \"", snug::checkpoint::Sha256Hex(body), "\"\n}\n");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace snug::checkpoint;
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  const auto manifest = ParseManifest(bytes[0] % 2 == 0 ? rest : Sealed(rest), "input");
  if (!manifest.ok()) return 0;
  // What was believed can be written, and is the same when it is read again.
  const auto text = ManifestText(*manifest);
  if (!text.ok()) abort();
  const auto again = ParseManifest(*text, "input");
  if (!again.ok() || ManifestText(*again).value() != *text) abort();
  return 0;
}
