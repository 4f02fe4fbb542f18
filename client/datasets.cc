// datasets preview: rows as they would be trained. The daemon reads them, so that what is shown is
// what a job would get there.
#include <cstdlib>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/dataset_text.h"
#include "client/job_file.h"
#include "client/json.h"
#include "proto/snug/enum_words.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

// What flags say; a dataset comes from FILE where that is one.
absl::StatusOr<v1::JobSpec> SpecOfFlags(const CommandLine& line) {
  v1::JobSpec spec;
  spec.set_model(line.model);
  if (!IsJobFile(line.file)) spec.set_dataset(line.file);
  spec.set_chat_template(line.chat_template);
  for (const std::string& token : line.added_tokens) spec.add_added_tokens(token);
  if (line.max_seq_length.has_value())
    spec.mutable_training()->set_max_seq_length(*line.max_seq_length);
  v1::JobSpec::DatasetFormat format = v1::JobSpec::DATASET_FORMAT_UNSPECIFIED;
  if (!line.format.empty() && !ParseEnumWord(line.format, &format))
    return absl::InvalidArgumentError(absl::StrCat("--format ", line.format, " is no format"));
  spec.set_dataset_format(format);
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  if (error) return absl::InternalError(absl::StrCat("no working directory: ", error.message()));
  RETURN_IF_ERROR(ResolvePaths(here.string(), &spec));
  return spec;
}

absl::StatusOr<v1::JobSpec> SpecOf(const CommandLine& line) {
  v1::JobSpec spec;
  if (IsJobFile(line.file)) {
    ASSIGN_OR_RETURN(spec, ParseJobFile(line.job_text, line.file, {}));
  }
  ASSIGN_OR_RETURN(const v1::JobSpec flags, SpecOfFlags(line));
  spec.MergeFrom(flags);
  return spec;
}

// NO_COLOR: https://no-color.org
bool WantsColour(const Terminal& terminal) {
  const char* no_colour = std::getenv("NO_COLOR");
  return terminal.is_tty && (no_colour == nullptr || *no_colour == '\0');
}

}  // namespace

absl::StatusOr<int> PreviewDataset(const CommandLine& line, Terminal& terminal) {
  v1::PreviewDatasetRequest request;
  ASSIGN_OR_RETURN(*request.mutable_spec(), SpecOf(line));
  request.set_rows(line.rows);
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  ASSIGN_OR_RETURN(const v1::PreviewDatasetResponse reply,
                   connection.Call(&v1::FineTuning::Stub::PreviewDataset, request));
  if (line.output == Output::kJson)
    terminal.out << JsonText(ToJson(reply));
  else
    PrintPreview(reply, WantsColour(terminal), terminal.out);
  return kExitOk;
}

}  // namespace snug::client
