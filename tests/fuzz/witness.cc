// The witness beside the store: what is valid can be written on, and is read again.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/job/witness.h"
#include "tests/fuzz/folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace snug::server;
  static const std::string path = Folder("store") + "/witness";
  Write(path, std::string_view(reinterpret_cast<const char*>(bytes), size));
  const auto witness = Witness::Open(path);
  if (!witness.ok()) return 0;
  const Testimony testimony = {.instance = "instance", .sequence = 7, .jobs = 3};
  if (!(*witness)->Write(testimony).ok()) return 0;
  const auto again = Witness::Open(path);
  if (!again.ok() || !(*again)->last().has_value() || (*again)->last()->sequence != 7) abort();
  return 0;
}
