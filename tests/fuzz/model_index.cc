// A model's model.safetensors.index.json beside one shard, which has the tensor "w".
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/fuzz/folder.h"
#include "worker/program/files/safetensors.h"

namespace {

std::string Shard() {
  std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  header.resize(64, ' ');
  return std::string("\x40\0\0\0\0\0\0\0", 8) + header + std::string(4, '\0');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const std::string folder = Folder("sharded");
  static const bool made = (Write(folder + "/a.safetensors", Shard()), true);
  Write(folder + "/model.safetensors.index.json",
        std::string_view(reinterpret_cast<const char*>(bytes), size));
  const auto index = snug::program::ReadModelIndex(folder);
  // Only what the shard has can be found.
  if (made && index.ok() && (index->size() != 1 || index->begin()->first != "w")) abort();
  return 0;
}
