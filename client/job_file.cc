#include "client/job_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "proto/snug/yaml.h"

namespace snug::client {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxIdBytes = 63;

absl::StatusOr<std::string> ReadText(const std::string& file) {
  std::error_code error;
  if (fs::is_directory(file, error)) {
    return absl::InvalidArgumentError(absl::StrCat(file, " is a folder; a job file is needed"));
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    return absl::NotFoundError(
        absl::StrCat("cannot read the job file ", file, ": ", std::strerror(errno)));
  }
  std::ostringstream text;
  text << stream.rdbuf();
  if (stream.bad())
    return absl::DataLossError(absl::StrCat("reading the job file ", file, " failed"));
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

std::string Resolved(const std::string& value, const fs::path& folder) {
  if (value.empty()) return value;
  const fs::path path = (folder / value).lexically_normal();  // An absolute value replaces it.
  // "model/" means the same as "model".
  return path.has_filename() ? path.string() : path.parent_path().string();
}

// A model may be that of a finished job: a name that is spelled like an id and is no path here.
bool IsJob(const std::string& model, const fs::path& folder) {
  std::error_code error;
  return IsId(model) && !fs::exists(folder / model, error);
}

}  // namespace

absl::StatusOr<v1::JobSpec> ReadJobFile(const std::string& file,
                                        const std::vector<std::string>& overrides) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(file));
  v1::JobSpec spec;
  RETURN_IF_ERROR(ParseYaml(text, file, &spec));
  for (const std::string& override_ : overrides) RETURN_IF_ERROR(ApplyOverride(override_, &spec));
  std::error_code error;
  const fs::path absolute = fs::absolute(file, error);
  if (error) return absl::InternalError(absl::StrCat(file, ": ", error.message()));
  const fs::path folder = absolute.parent_path();
  if (!IsJob(spec.model(), folder)) spec.set_model(Resolved(spec.model(), folder));
  spec.set_dataset(Resolved(spec.dataset(), folder));
  spec.set_eval_dataset(Resolved(spec.eval_dataset(), folder));
  if (spec.has_lora())
    spec.mutable_lora()->set_init_adapter(Resolved(spec.lora().init_adapter(), folder));
  if (spec.display_name().empty()) spec.set_display_name(absolute.stem().string());
  return spec;
}

}  // namespace snug::client
