#include "client/job_file.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/hub_cache.h"
#include "proto/snug/other_names.h"
#include "proto/snug/status_macros.h"
#include "proto/snug/yaml.h"

namespace snug::client {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxIdBytes = 63;
constexpr const char* kStandardInput = "-";
constexpr const char* kCheckpoints = "/checkpoints/";

absl::StatusOr<std::string> ReadText(const std::string& file, absl::string_view what) {
  std::error_code error;
  if (file == kStandardInput) {
    std::ostringstream text;
    text << std::cin.rdbuf();
    return text.str();
  }
  if (fs::is_directory(file, error)) {
    return absl::InvalidArgumentError(absl::StrCat(file, " is a folder; a ", what, " is needed"));
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    return absl::NotFoundError(
        absl::StrCat("cannot read the ", what, " ", file, ": ", std::strerror(errno)));
  }
  std::ostringstream text;
  text << stream.rdbuf();
  if (stream.bad())
    return absl::DataLossError(absl::StrCat("reading the ", what, " ", file, " failed"));
  return text.str();
}

// [a-z]([a-z0-9-]{0,61}[a-z0-9])?
bool IsId(const std::string& text) {
  if (text.empty() || text.size() > kMaxIdBytes || !absl::ascii_islower(text.front()) ||
      text.back() == '-')
    return false;
  for (const char c : text) {
    if (!absl::ascii_islower(c) && !absl::ascii_isdigit(c) && c != '-') return false;
  }
  return true;
}

// "~/x" is below the user's home.
std::string WithHome(const std::string& value) {
  const char* home = std::getenv("HOME");
  const bool is_home = value == "~" || absl::StartsWith(value, "~/");
  return is_home && home != nullptr ? home + value.substr(1) : value;
}

std::string Resolved(const std::string& value, const fs::path& folder) {
  if (value.empty()) return value;
  const fs::path path =
      (folder / WithHome(value)).lexically_normal();  // An absolute value replaces it.
  // "model/" means the same as "model".
  return path.has_filename() ? path.string() : path.parent_path().string();
}

// A name as the API gives it: tenants/TENANT/datasets/ID.
bool IsName(absl::string_view text, absl::string_view collection) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '/');
  return parts.size() == 4 && parts[0] == "tenants" && parts[2] == collection &&
         !parts[1].empty() && !parts[3].empty();
}

// What `snug files upload` prints, or the file's name.
bool IsFileId(absl::string_view text) {
  if (IsName(text, "datasets")) return true;
  return absl::ConsumePrefix(&text, "file-") && text.size() == 24 &&
         absl::c_all_of(text, absl::ascii_isxdigit);
}

// A model or an adapter may be what a job made, or what it was after a step: JOB or
// JOB/checkpoints/STEP, where JOB is spelled like an id or a name, and nothing here has that path.
bool IsJob(const std::string& text, const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / text, error)) return false;
  const size_t at = text.find(kCheckpoints);
  const std::string job = text.substr(0, at);
  const std::string step = at == text.npos ? "1" : text.substr(at + std::strlen(kCheckpoints));
  return (IsId(job) || IsName(job, "jobs")) && !step.empty() &&
         absl::c_all_of(step, absl::ascii_isdigit);
}

// A model's folder: a path, or what the Hugging Face cache has of an id, which no folder hides.
absl::StatusOr<std::string> ModelPath(const std::string& model, const fs::path& folder) {
  std::error_code error;
  if (!IsHubId(model) || fs::exists(folder / model, error)) return Resolved(model, folder);
  return FindInHubCache(model, HubKind::kModel);
}

// A dataset's file or folder: a path, a pattern of paths, or what the caches of Hugging Face have
// of an id.
absl::StatusOr<std::string> DatasetPath(const std::string& dataset, const std::string& config,
                                        const fs::path& folder) {
  std::error_code error;
  if (IsFileId(dataset) && !fs::exists(folder / dataset, error)) return dataset;
  if (!IsHubId(dataset) || fs::exists(folder / dataset, error)) return Resolved(dataset, folder);
  absl::StatusOr<std::string> snapshot = FindInHubCache(dataset, HubKind::kDataset);
  if (snapshot.ok()) return snapshot;
  if (absl::StatusOr<std::string> loaded = FindInDatasetsCache(dataset, config); loaded.ok())
    return loaded;
  // A file that is not there is the likelier mistake where the id has an ending.
  if (fs::path(dataset).has_extension()) return Resolved(dataset, folder);
  return snapshot;
}

absl::Status ResolveDatasets(const std::string& folder, v1::JobSpec* spec) {
  ASSIGN_OR_RETURN(*spec->mutable_dataset(),
                   DatasetPath(spec->dataset(), spec->dataset_config(), folder));
  ASSIGN_OR_RETURN(*spec->mutable_eval_dataset(),
                   DatasetPath(spec->eval_dataset(), spec->dataset_config(), folder));
  for (v1::DatasetSource& source : *spec->mutable_datasets()) {
    ASSIGN_OR_RETURN(*source.mutable_path(), DatasetPath(source.path(), source.config(), folder));
  }
  return absl::OkStatus();
}

// A chat template as the daemon takes it: text as it is; the text of a file; else a name, one of
// the model's own templates, as it is.
absl::StatusOr<std::string> ReadChatTemplate(const std::string& given, const fs::path& folder) {
  const bool is_text = absl::StrContains(given, "{") || absl::StrContains(given, "\n");
  if (given.empty() || is_text) return given;
  const fs::path path = folder / given;
  std::error_code error;
  const bool is_path = absl::StrContains(given, "/") || path.extension() == ".jinja";
  if (!is_path && !fs::exists(path, error)) return given;
  return ReadText(path.string(), "chat template");
}

// `sample_prompts: prompts.txt`, where there is such a file: a prompt per line.
absl::Status ReadPrompts(const fs::path& folder, v1::TrainingSpec& training) {
  std::error_code error;
  if (training.sample_prompts_size() != 1) return absl::OkStatus();
  const std::string file = Resolved(training.sample_prompts(0), folder);
  if (!fs::is_regular_file(file, error)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string text, ReadText(file, "file of prompts"));
  training.clear_sample_prompts();
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace()))
    training.add_sample_prompts(std::string(absl::StripSuffix(line, "\r")));
  return absl::OkStatus();
}

// Whether the command line says what stands at the field of a path, or what that is part of.
bool Overrides(const std::string& assignment, absl::string_view field) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(assignment, absl::MaxSplits('=', 1));
  const OurName ours = OurNameOfPath(parts.first, parts.second, *v1::JobSpec::descriptor());
  const std::string path = ours.kind == OurName::Kind::kField ? ours.path : parts.first;
  return absl::ConsumePrefix(&field, path) &&
         (field.empty() || field.front() == '.' || field.front() == '[');
}

}  // namespace

absl::Status ResolvePaths(const std::string& folder, v1::JobSpec* spec) {
  if (!IsJob(spec->model(), folder)) {
    ASSIGN_OR_RETURN(*spec->mutable_model(), ModelPath(spec->model(), folder));
  }
  RETURN_IF_ERROR(ResolveDatasets(folder, spec));
  ASSIGN_OR_RETURN(*spec->mutable_chat_template(), ReadChatTemplate(spec->chat_template(), folder));
  if (spec->has_lora() && !IsJob(spec->lora().init_adapter(), folder))
    spec->mutable_lora()->set_init_adapter(Resolved(spec->lora().init_adapter(), folder));
  return spec->has_training() ? ReadPrompts(folder, *spec->mutable_training()) : absl::OkStatus();
}

LineOf LinesOf(const std::string& text, const std::vector<std::string>& overrides) {
  return [text, overrides](const std::string& field) {
    for (const std::string& override_ : overrides)
      if (Overrides(override_, field)) return 0;
    return LineOfField(text, field, *v1::JobSpec::descriptor());
  };
}

bool IsJobFile(absl::string_view path) {
  return absl::EndsWith(path, ".yaml") || absl::EndsWith(path, ".yml");
}

absl::StatusOr<std::string> ReadJobFile(const std::string& file) {
  return ReadText(file, "job file");
}

absl::StatusOr<v1::JobSpec> ParseJobFile(const std::string& text, const std::string& file,
                                         const std::vector<std::string>& overrides) {
  v1::JobSpec spec;
  RETURN_IF_ERROR(ParseYaml(text, file, &spec));
  for (const std::string& override_ : overrides) RETURN_IF_ERROR(ApplyOverride(override_, &spec));
  std::error_code error;
  const fs::path absolute = fs::absolute(file, error);
  if (error) return absl::InternalError(absl::StrCat(file, ": ", error.message()));
  RETURN_IF_ERROR(ResolvePaths(absolute.parent_path().string(), &spec));
  if (spec.display_name().empty() && file != kStandardInput)
    spec.set_display_name(absolute.stem().string());
  return spec;
}

}  // namespace snug::client
