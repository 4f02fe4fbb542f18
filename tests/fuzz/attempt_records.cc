// What a shim and a worker leave behind: up to the first zero byte exit.json, then result.json.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/node/attempt_files.h"
#include "tests/fuzz/folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace snug::server;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  static const std::string folder = Folder("attempt");
  static const AttemptIdentity identity = {"instance", "job", 1, "nonce"};
  const size_t zero = text.find('\0');
  Write(folder + "/exit.json", text.substr(0, zero));
  Write(folder + "/result.json", zero == std::string_view::npos ? "{}" : text.substr(zero + 1));
  const auto exit = ReadExitRecord(folder, identity);
  // It is this attempt's, or it is none.
  if (exit.ok() && exit->has_value() && text.find("nonce") == std::string_view::npos) abort();
  const auto result = ReadResult(folder);
  if (result.ok() && !result->has_value()) abort();
  return 0;
}
