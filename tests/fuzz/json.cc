// JSON that becomes a message, and the message JSON again.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "proto/snug/json.h"
#include "snug/v1/worker.pb.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace snug;
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  v1::WorkerResult result, again;
  if (!JsonToMessage(text, UnknownFields::kIgnored, &result).ok()) return 0;
  const auto json = MessageToJson(result);
  if (!json.ok()) return 0;  // Text that is not UTF-8.
  if (!JsonToMessage(json->dump(), UnknownFields::kRefused, &again).ok()) abort();
  if (MessageToJson(again)->dump() != json->dump()) abort();
  return 0;
}
