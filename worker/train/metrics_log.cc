#include "worker/train/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/new_file.h"
#include "worker/checkpoint/read_file.h"
#include "worker/program/files/json.h"

namespace snug::train {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kEval = "eval_";
// A line is an object of some dozens of numbers.
constexpr program::JsonLimits kMetricsLimits = {.depth = 4};

struct ParsedLine {
  int64_t step = -1;  // -1: not a line of this log.
  std::optional<double> eval_loss;
  Figures eval_figures;
};

// The rule of the whole file: steps 1, 2, 3, ... behind where it begins, and behind a step at most
// one evaluation of it. Gives the problem with a line, or nothing and the steps with it.
std::string Follow(MetricsSteps& steps, const ParsedLine& line) {
  const bool evaluation = line.eval_loss.has_value();
  if (evaluation && line.step != steps.last) {
    return absl::StrCat("an evaluation of step ", line.step, " behind step ", steps.last);
  }
  if (evaluation && line.step == steps.last_evaluated) {
    return absl::StrCat("a second evaluation of step ", line.step);
  }
  if (!evaluation && line.step != steps.last + 1) {
    return absl::StrCat("step ", line.step, " behind step ", steps.last);
  }
  (evaluation ? steps.last_evaluated : steps.last) = line.step;
  if (!evaluation) return "";
  steps.eval_loss = *line.eval_loss;
  steps.eval_figures = line.eval_figures;
  return "";
}

// Of an evaluation's line, all but what is a member of EvalMetrics by itself.
template <typename Json>
Figures FiguresIn(const Json& json) {
  Figures figures;
  for (const auto& [name, value] : json.items()) {
    if (!name.starts_with(kEval) || !value.is_number()) continue;
    if (name != "eval_loss" && name != "eval_runtime")
      figures[name.substr(kEval.size())] = value.template get<double>();
  }
  return figures;
}

template <typename Json>
ParsedLine Parsed(const Json& json) {
  const auto step = json.find("global_step");
  const auto eval_loss = json.find("eval_loss");
  const bool evaluation = eval_loss != json.end();
  if (step == json.end() || !step->is_number_integer() || evaluation == json.contains("loss") ||
      (evaluation && !eval_loss->is_number())) {
    return {};
  }
  ParsedLine line{.step = step->template get<int64_t>(), .eval_loss = {}, .eval_figures = {}};
  if (!evaluation) return line;
  line.eval_loss = eval_loss->template get<double>();
  line.eval_figures = FiguresIn(json);
  return line;
}

ParsedLine ParseLine(const std::string& line) {
  const auto json = program::ParseJson(line, "a line of metrics", kMetricsLimits).value_or(nullptr);
  return json.is_object() ? Parsed(json) : ParsedLine{};
}

// The lines to carry over are the beginning of the file: they are in the order of their steps.
struct Beginning {
  int64_t bytes = 0;
  MetricsSteps steps;
};

absl::StatusOr<Beginning> FindBeginning(const MetricsResume& resume) {
  std::ifstream file(resume.previous, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open ", resume.previous));
  Beginning beginning = {.bytes = 0, .steps = {.last = resume.begin}};
  std::string line;
  // At the end of the file, getline has met no line break: such a line is torn.
  for (int64_t number = 1; std::getline(file, line) && !file.eof(); ++number) {
    const ParsedLine parsed = ParseLine(line);
    if (parsed.step > resume.step) break;
    const std::string problem =
        parsed.step < 0 ? "not a line of metrics" : Follow(beginning.steps, parsed);
    if (!problem.empty()) {
      return absl::DataLossError(absl::StrCat(resume.previous, ":", number, ": ", problem));
    }
    beginning.bytes += static_cast<int64_t>(line.size()) + 1;
  }
  if (beginning.steps.last == resume.step) return beginning;
  return absl::DataLossError(absl::StrCat(resume.previous, " ends at step ", beginning.steps.last,
                                          "; the checkpoint is of step ", resume.step));
}

absl::Status CopyBeginning(const std::string& from, int64_t bytes, const std::string& to) {
  ASSIGN_OR_RETURN(const checkpoint::OpenFile file,
                   checkpoint::OpenFile::Open(from, checkpoint::Links::kRefuse));
  ASSIGN_OR_RETURN(checkpoint::NewFile copy, checkpoint::NewFile::Create(to, bytes));
  RETURN_IF_ERROR(file.ForEachPiece(0, bytes, [&copy](std::string_view piece) {
    return copy.Append(piece.data(), static_cast<int64_t>(piece.size()));
  }));
  return copy.Finish().status();
}

absl::StatusOr<int> OpenToAppend(const std::string& path, int create) {
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC | create, 0600);
  if (fd < 0) return checkpoint::WriteError(errno, absl::StrCat("cannot open ", path));
  return fd;
}

// The time of day, to the millisecond.
double UnixSeconds() { return static_cast<double>(absl::ToUnixMillis(absl::Now())) / 1000.0; }

absl::Status CheckNumbers(const ordered_json& line) {
  for (const auto& [name, value] : line.items()) {
    if (value.is_number_float() && !std::isfinite(value.get<double>())) {
      return absl::InvalidArgumentError(absl::StrCat("metrics of step ",
                                                     line["global_step"].get<int64_t>(), ": ", name,
                                                     " is ", value.get<double>()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MetricsLog> MetricsLog::Create(const std::string& path, int64_t begin) {
  ASSIGN_OR_RETURN(const int fd, OpenToAppend(path, O_CREAT | O_EXCL));
  return MetricsLog(path, fd, 0, {.last = begin});
}

absl::StatusOr<MetricsLog> MetricsLog::Resume(const std::string& path,
                                              const MetricsResume& resume) {
  ASSIGN_OR_RETURN(const Beginning beginning, FindBeginning(resume));
  const std::string aside = path + ".tmp";
  if (unlink(aside.c_str()) != 0 && errno != ENOENT) {
    return checkpoint::WriteError(errno, absl::StrCat("cannot remove ", aside));
  }
  RETURN_IF_ERROR(CopyBeginning(resume.previous, beginning.bytes, aside));
  if (renameat2(AT_FDCWD, aside.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0) {
    return checkpoint::WriteError(errno, absl::StrCat("cannot rename ", aside, " to ", path));
  }
  RETURN_IF_ERROR(checkpoint::SyncFolder(std::filesystem::path(path).parent_path().string()));
  ASSIGN_OR_RETURN(const int fd, OpenToAppend(path, 0));
  return MetricsLog(path, fd, beginning.bytes, beginning.steps);
}

MetricsLog::MetricsLog(std::string path, int fd, int64_t bytes, MetricsSteps steps)
    : path_(std::move(path)), fd_(fd), bytes_(bytes), steps_(steps) {}

MetricsLog::MetricsLog(MetricsLog&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      bytes_(other.bytes_),
      steps_(other.steps_) {}

MetricsLog::~MetricsLog() {
  if (fd_ >= 0) close(fd_);
}

absl::Status MetricsLog::Append(const StepMetrics& metrics) {
  ordered_json line = {{"loss", metrics.loss},
                       {"grad_norm", metrics.grad_norm},
                       {"learning_rate", metrics.learning_rate},
                       {"epoch", metrics.epoch},
                       {"global_step", metrics.global_step},
                       {"num_tokens", metrics.num_tokens},
                       {"samples", metrics.samples}};
  if (metrics.accuracy_name != nullptr) {
    line[metrics.accuracy_name] = metrics.mean_token_accuracy;
    line["entropy"] = metrics.entropy;
  }
  line.update({{"tokens_per_second", metrics.tokens_per_second},
               {"step_seconds", metrics.step_seconds},
               {"time", UnixSeconds()}});
  return AppendLine(line);
}

absl::Status MetricsLog::Append(const EvalMetrics& metrics) {
  ordered_json line = {{"eval_loss", metrics.eval_loss}};
  for (const auto& [name, value] : metrics.figures) line[std::string(kEval) + name] = value;
  line.update({{"eval_runtime", metrics.runtime},
               {"global_step", metrics.global_step},
               {"epoch", metrics.epoch},
               {"time", UnixSeconds()}});
  return AppendLine(line);
}

absl::Status MetricsLog::AppendLine(const ordered_json& line) {
  RETURN_IF_ERROR(CheckNumbers(line));
  MetricsSteps steps = steps_;
  const std::string problem = Follow(steps, Parsed(line));
  if (!problem.empty()) return absl::InvalidArgumentError(absl::StrCat(path_, ": ", problem));
  RETURN_IF_ERROR(Write(line.dump() + "\n"));
  steps_ = steps;
  return absl::OkStatus();
}

absl::Status MetricsLog::Write(const std::string& line) {
  const auto size = static_cast<ssize_t>(line.size());
  ssize_t written = 0;
  do {
    written = write(fd_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == size) {
    bytes_ += size;
    return absl::OkStatus();
  }
  // A regular file takes less than all of a line only when the disk is full.
  const int cause = written < 0 ? errno : ENOSPC;
  if (written > 0 && ftruncate(fd_, bytes_) != 0) {
    return checkpoint::WriteError(errno, absl::StrCat("cannot take back half a line of ", path_));
  }
  return checkpoint::WriteError(cause, absl::StrCat("cannot write ", path_));
}

absl::Status MetricsLog::Sync() {
  if (fsync(fd_) == 0) return absl::OkStatus();
  return checkpoint::WriteError(errno, absl::StrCat("cannot sync ", path_));
}

}  // namespace snug::train
