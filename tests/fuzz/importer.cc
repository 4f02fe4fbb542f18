// Job files of other tools. Behind a zero byte follows LLaMA-Factory's dataset_info.json.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "client/importer.h"
#include "proto/snug/yaml.h"
#include "snug/v1/job.pb.h"
#include "tests/fuzz/folder.h"

// A file whose settings are not all read is read setting by setting: a long one takes milliseconds.
constexpr size_t kMostBytes = 512;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size > kMostBytes) return 0;
  static const std::string folder = Folder("foreign");
  static const std::string data = Folder("foreign/data");
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  const size_t zero = std::min(text.find('\0'), size);
  Write(data + "/dataset_info.json", std::string_view(text).substr(std::min(zero + 1, size)));
  const auto job = snug::client::ImportJob(text.substr(0, zero), folder + "/job.yaml");
  if (!job.ok()) return 0;
  // What it gives is a job file of ours.
  snug::v1::JobSpec spec;
  const absl::Status read = snug::ParseYaml(*job, "job.yaml", &spec);
  if (read.ok()) return 0;
  fprintf(stderr, "%s\n%s\n", read.ToString().c_str(), job->c_str());
  abort();
}
