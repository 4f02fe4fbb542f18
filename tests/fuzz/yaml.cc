// Job files and the daemon's configuration; the first byte says which. Behind a zero byte an
// override follows.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "proto/snug/yaml.h"
#include "proto/snug/yaml_node.h"
#include "snug/v1/config.pb.h"
#include "snug/v1/job.pb.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size == 0) return 0;
  const absl::string_view text(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  const size_t zero = text.find('\0');
  const absl::string_view change =
      zero == absl::string_view::npos ? absl::string_view() : text.substr(zero + 1);
  snug::v1::JobSpec job;
  snug::v1::DaemonConfig config;
  google::protobuf::Message* message = &config;
  if (bytes[0] % 2 == 0) message = &job;
  const absl::Status parsed = snug::ParseYaml(text.substr(0, zero), "input", message);
  if (!parsed.ok() && snug::YamlErrors(parsed).empty()) abort();
  if (parsed.ok() && !change.empty()) snug::ApplyOverride(change, message).IgnoreError();
  return 0;
}
