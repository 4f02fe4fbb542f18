#include "worker/train/samples_log.h"

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "worker/checkpoint/new_file.h"
#include "worker/program/files/json.h"

namespace snug::train {
namespace {

// A line holds a prompt, its answer, and a number for each of the answer's tokens.
constexpr program::JsonLimits kSampleLimits = {
    .bytes = int64_t{64} << 20, .values = 1'000'000, .depth = 4};

std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::Status Write(const std::string& path, const std::string& text, std::ios::openmode mode) {
  std::ofstream file(path, std::ios::binary | mode);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return checkpoint::WriteError(errno, absl::StrCat("cannot write ", path));
}

}  // namespace

absl::Status BeginSamples(const std::string& path, const std::string& previous, int64_t step) {
  std::string kept;
  std::ifstream file(previous, std::ios::binary);
  for (std::string line; !previous.empty() && std::getline(file, line) && !file.eof();) {
    const auto json = program::ParseJson(line, previous, kSampleLimits).value_or(nullptr);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer())
      return absl::DataLossError(absl::StrCat(previous, ": not a line of samples"));
    if (json["step"].get<int64_t>() > step) break;
    absl::StrAppend(&kept, line, "\n");
  }
  return Write(path, kept, std::ios::trunc);
}

absl::Status AppendSamples(const std::string& path, const std::vector<Sample>& samples) {
  std::string text;
  for (const Sample& sample : samples) {
    const nlohmann::ordered_json line = {{"step", sample.step},
                                         {"prompt", sample.prompt},
                                         {"completion", sample.completion},
                                         {"tokens", sample.tokens}};
    absl::StrAppend(&text, line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                    "\n");
  }
  return Write(path, text, std::ios::app);
}

absl::Status CarrySamples(const std::string& path, const std::string& folder) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return absl::DataLossError(absl::StrCat("cannot read ", path));
  return checkpoint::WriteNewFile(folder + "/samples.jsonl", text.str()).status();
}

std::string Shown(const Sample& sample) {
  return absl::StrCat("sample after step ", sample.step, ": ", Quoted(sample.prompt), " -> ",
                      Quoted(sample.completion));
}

}  // namespace snug::train
