// What snug-prepare says about a dataset: its summary or, as the first byte says, a preview.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/data/prepared_dataset.h"
#include "tests/fuzz/folder.h"

namespace {

// The daemon hands it on.
template <typename Message>
void CheckSent(const absl::StatusOr<Message>& message) {
  Message again;
  if (message.ok() && !again.ParseFromString(message->SerializeAsString())) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace snug::server;
  if (size == 0) return 0;
  static const std::string folder = Folder("prepared");
  Write(folder + "/summary.json",
        std::string_view(reinterpret_cast<const char*>(bytes) + 1, size - 1));
  if (bytes[0] % 2 == 0)
    CheckSent(ReadSummary(folder));
  else
    CheckSent(ReadPreview(folder + "/summary.json"));
  return 0;
}
