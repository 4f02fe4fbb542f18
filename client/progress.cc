#include "client/progress.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/advice.h"
#include "client/job_text.h"
#include "client/sparkline.h"
#include "client/table.h"
#include "proto/snug/bytes.h"

namespace snug::client {
namespace {

constexpr absl::Duration kLineInterval = absl::Seconds(1);
constexpr int kMinBar = 10, kMaxBar = 30;       // Characters.
constexpr int kMinLosses = 8, kMaxLosses = 24;  // Blocks.
constexpr const char* kBold = "\033[1m";
constexpr const char* kRed = "\033[31m";
constexpr const char* kGreen = "\033[32m";
constexpr const char* kYellow = "\033[33m";
constexpr const char* kCyan = "\033[36m";
constexpr const char* kPlain = "\033[0m";

const char* ColourOf(v1::Job::State state) {
  if (state == v1::Job::STATE_SUCCEEDED) return kGreen;
  return state == v1::Job::STATE_FAILED ? kRed : kYellow;
}

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
  // Last, as a narrow terminal cuts the line.
  if (const std::string evaluation = EvaluationText(progress); !evaluation.empty())
    absl::StrAppend(&text, "  ", evaluation);
  return text;
}

void ProgressPrinter::Show(const v1::Job& job, absl::Time now) {
  time_left_.Add(job.progress(), now);
  ShowState(job);
  const bool has_steps = job.progress().max_steps() > 0 && job.progress().global_step() > 0;
  if (has_steps && (job.state() == v1::Job::STATE_RUNNING || HasEnded(job.state())))
    ShowSteps(job, now);
}

// While a job waits or is prepared its reason changes all the time: a terminal shows the last one.
void ProgressPrinter::ShowState(const v1::Job& job) {
  if (HasEnded(job.state())) return;  // PrintEnd tells of it.
  const std::string state = absl::StrCat(StateName(job.state()), job.reason().empty() ? "" : ": ",
                                         Printable(job.reason()));
  if (state == last_state_) return;
  last_state_ = state;
  const bool again = line_is_open_ && job.state() == state_;
  state_ = job.state();
  const bool changes = state_ == v1::Job::STATE_PREPARING || state_ == v1::Job::STATE_QUEUED;
  if (!again || !changes) FinishLine();
  if (!terminal_.is_tty || !changes) {
    terminal_.out << state << std::endl;
    return;
  }
  const auto room = static_cast<size_t>(std::max(options_.columns - 1, 0));
  terminal_.out << "\r" << Clipped(state, room) << "\033[K" << std::flush;
  line_is_open_ = true;
}

void ProgressPrinter::ShowSteps(const v1::Job& job, absl::Time now) {
  const v1::Progress& progress = job.progress();
  const bool is_last = progress.global_step() == progress.max_steps() || HasEnded(job.state());
  const std::string step = absl::StrCat("step ", progress.global_step(), "/", progress.max_steps());
  // The same step is told again when more is known of it: its evaluation, say.
  const std::string told = absl::StrCat(step, " ", LossText(progress), EvaluationText(progress));
  if (told == last_told_ && !terminal_.is_tty) return;
  if (!terminal_.is_tty && !is_last && now - last_written_ < kLineInterval) return;
  if (progress.global_step() > last_step_) losses_.push_back(progress.loss());
  last_step_ = progress.global_step();
  last_told_ = told;
  last_written_ = now;
  const std::string facts = Facts(job);
  if (!terminal_.is_tty) {
    terminal_.out << step << "  " << facts << std::endl;
    return;
  }
  // Back to the left, the line, clear what is behind it.
  terminal_.out << "\r" << DrawnLine(progress, step, facts) << "\033[K" << std::flush;
  line_is_open_ = true;
}

// The facts come first; what they leave of the line is the bar's, and then the losses'.
std::string ProgressPrinter::DrawnLine(const v1::Progress& progress, const std::string& step,
                                       const std::string& facts) const {
  int room = options_.columns - static_cast<int>(step.size() + facts.size()) - 7;
  std::string line = Painted(kBold, step);
  if (room >= kMinBar) {
    const double share =
        static_cast<double>(progress.global_step()) / static_cast<double>(progress.max_steps());
    const int width = std::min(room, kMaxBar);
    absl::StrAppend(&line, "  ", Painted(kGreen, Bar(share, width)));
    room -= width + 4;
  }
  if (room >= kMinLosses && losses_.size() > 1)
    absl::StrAppend(&line, "  ", Painted(kCyan, Sparkline(losses_, std::min(room, kMaxLosses))));
  const int left = options_.columns - 3 - static_cast<int>(step.size());
  return absl::StrCat(line, "  ", facts.substr(0, static_cast<size_t>(std::max(left, 0))));
}

std::string ProgressPrinter::Painted(const char* colour, const std::string& text) const {
  return options_.colour ? absl::StrCat(colour, text, kPlain) : text;
}

void ProgressPrinter::FinishLine() {
  if (line_is_open_) terminal_.out << std::endl;
  line_is_open_ = false;
}

void PrintEnd(const v1::Job& job, Terminal& terminal, bool colour) {
  std::string text = StateName(job.state());
  if (colour) text = absl::StrCat(ColourOf(job.state()), text, kPlain);
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
  if (job.state() != v1::Job::STATE_SUCCEEDED && !job.reason().empty() && says_more) {
    absl::StrAppend(&text, "; ", Printable(job.reason()));
  }
  terminal.out << text << std::endl;
  if (job.state() == v1::Job::STATE_SUCCEEDED || job.has_output()) {
    terminal.out << "fetch it with: snug download " << job.id() << " DIR" << std::endl;
  }
  const std::string error = ErrorText(job.error());
  if (!error.empty())
    terminal.err << "snug: " << job.id() << ": " << PrintableLines(error) << std::endl;
  const std::string advice = WhatToTry(job);
  if (!advice.empty()) terminal.err << "snug: try " << advice << std::endl;
}

}  // namespace snug::client
