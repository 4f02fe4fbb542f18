#include "client/progress.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/advice.h"
#include "client/job_text.h"
#include "client/table.h"
#include "proto/snug/bytes.h"

namespace snug::client {
namespace {

constexpr absl::Duration kLineInterval = absl::Seconds(1);
constexpr int kMaxBar = 30;  // Characters.

std::string Bar(double share, int width) {
  const int full = std::clamp(static_cast<int>(share * width), 0, width);
  return absl::StrCat("[", std::string(full, '#'), std::string(width - full, '.'), "]");
}

std::string LossText(const v1::Progress& progress) {
  std::string text = absl::StrFormat("loss %.4f", progress.loss());
  if (progress.has_eval_loss())
    absl::StrAppend(&text, absl::StrFormat("  eval loss %.4f", progress.eval_loss()));
  return text;
}

}  // namespace

void TimeLeft::Add(const v1::Progress& progress, absl::Time now) {
  const int64_t step = progress.global_step();
  if (step == 0 || step == step_) return;
  if (step_ == 0 || step < step_) {  // The first one, or one of a worker that had to start again.
    first_step_ = step;
    first_time_ = now;
    per_step_ = absl::Seconds(progress.step_seconds());
  } else {
    per_step_ = (now - first_time_) / (step - first_step_);
  }
  step_ = step;
  max_steps_ = progress.max_steps();
}

absl::Duration TimeLeft::Estimate() const {
  if (per_step_ <= absl::ZeroDuration()) return absl::Seconds(-1);
  return per_step_ * std::max<int64_t>(0, max_steps_ - step_);
}

std::string ProgressPrinter::Facts(const v1::Job& job) const {
  const v1::Progress& progress = job.progress();
  std::string text = LossText(progress);
  if (progress.tokens_per_second() > 0) {
    absl::StrAppend(&text, absl::StrFormat("  %.0f tokens/s", progress.tokens_per_second()));
  }
  if (const std::string memory = MemoryText(job.memory()); !memory.empty())
    absl::StrAppend(&text, "  ", memory);
  const absl::Duration left = time_left_.Estimate();
  if (left > absl::ZeroDuration()) absl::StrAppend(&text, "  ", DurationText(left), " left");
  return text;
}

void ProgressPrinter::Show(const v1::Job& job, absl::Time now) {
  time_left_.Add(job.progress(), now);
  ShowState(job);
  const bool has_steps = job.progress().max_steps() > 0 && job.progress().global_step() > 0;
  if (has_steps && (job.state() == v1::Job::RUNNING || HasEnded(job.state()))) ShowSteps(job, now);
}

void ProgressPrinter::ShowState(const v1::Job& job) {
  if (HasEnded(job.state())) return;  // PrintEnd tells of it.
  const std::string state = absl::StrCat(StateName(job.state()), job.reason().empty() ? "" : ": ",
                                         Printable(job.reason()));
  if (state == last_state_) return;
  last_state_ = state;
  FinishLine();
  terminal_.out << state << std::endl;
}

void ProgressPrinter::ShowSteps(const v1::Job& job, absl::Time now) {
  const v1::Progress& progress = job.progress();
  const bool is_last = progress.global_step() == progress.max_steps() || HasEnded(job.state());
  const std::string step = absl::StrCat("step ", progress.global_step(), "/", progress.max_steps());
  // The same step is told again when more is known of it: its evaluation, say.
  const std::string told = absl::StrCat(step, " ", LossText(progress));
  if (told == last_told_ && !terminal_.is_tty) return;
  if (!terminal_.is_tty && !is_last && now - last_written_ < kLineInterval) return;
  last_told_ = told;
  last_written_ = now;
  const std::string facts = Facts(job);
  if (!terminal_.is_tty) {
    terminal_.out << step << "  " << facts << std::endl;
    return;
  }
  const int room = columns_ - static_cast<int>(step.size() + facts.size()) - 7;
  std::string line = step;
  if (room >= 10) {
    const double share =
        static_cast<double>(progress.global_step()) / static_cast<double>(progress.max_steps());
    absl::StrAppend(&line, "  ", Bar(share, std::min(room, kMaxBar)));
  }
  absl::StrAppend(&line, "  ", facts);
  line.resize(std::min<size_t>(line.size(), std::max(columns_ - 1, 1)));
  terminal_.out << "\r" << line << "\033[K"
                << std::flush;  // Back to the left, the line, clear what is behind it.
  line_is_open_ = true;
}

void ProgressPrinter::FinishLine() {
  if (line_is_open_) terminal_.out << std::endl;
  line_is_open_ = false;
}

void PrintEnd(const v1::Job& job, Terminal& terminal) {
  std::string text = StateName(job.state());
  if (job.progress().global_step() > 0) {
    absl::StrAppend(&text, " at step ", job.progress().global_step(), " of ",
                    job.progress().max_steps());
  }
  if (job.has_start_time() && job.has_end_time()) {
    const int64_t seconds = job.end_time().seconds() - job.start_time().seconds();
    absl::StrAppend(&text, " after ", DurationText(absl::Seconds(seconds)));
  }
  if (job.memory().measured_peak_bytes() > 0) {
    absl::StrAppend(&text, "; peak memory ", FormatBytes(job.memory().measured_peak_bytes()),
                    ", predicted ", FormatBytes(job.memory().predicted_peak_bytes()));
  }
  const bool says_more = !absl::EqualsIgnoreCase(job.reason(), StateName(job.state()));
  if (job.state() != v1::Job::SUCCEEDED && !job.reason().empty() && says_more) {
    absl::StrAppend(&text, "; ", Printable(job.reason()));
  }
  terminal.out << text << std::endl;
  if (job.state() == v1::Job::SUCCEEDED || job.has_output()) {
    terminal.out << "fetch it with: snug download " << job.id() << " DIR" << std::endl;
  }
  const std::string error = ErrorText(job.error());
  if (!error.empty()) terminal.err << "snug: " << job.id() << ": " << Printable(error) << std::endl;
  const std::string advice = WhatToTry(job);
  if (!advice.empty()) terminal.err << "snug: try " << advice << std::endl;
}

}  // namespace snug::client
