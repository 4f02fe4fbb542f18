// What snug-inspect answers to the daemon, and what it is asked.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "server/inspect/wire.h"
#include "snug/v1/inspect.pb.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  snug::v1::InspectReply reply;
  snug::v1::InspectRequest request;
  const bool is_one = snug::server::ParseFrame(text, reply).ok();
  if (is_one && reply.ByteSizeLong() > size) abort();
  (void)snug::server::ParseFrame(text, request).ok();
  return 0;
}
