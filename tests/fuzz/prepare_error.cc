// What snug-prepare has written when it fails. The first two bytes are its exit code and signal.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "server/data/prepare_command.h"
#include "server/job/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace snug::server;
  if (size < 2) return 0;
  RunResult result = {.exit_code = bytes[0], .signal = bytes[1], .out = {}, .err = {}};
  result.err.assign(reinterpret_cast<const char*>(bytes) + 2, size - 2);
  const absl::Status status = PrepareError(result, "dataset");
  if (status.ok()) abort();
  // The job's record has it, which must be readable for ever.
  const snug::v1::Error error = ToJobError(status);
  snug::v1::Error again;
  if (error.reason().empty() || !again.ParseFromString(error.SerializeAsString())) abort();
  return 0;
}
