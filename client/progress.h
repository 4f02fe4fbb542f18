// What `watch` shows of a stream of jobs: on a terminal a line that is drawn over and over, else
// lines to keep.
#ifndef CLIENT_PROGRESS_H_
#define CLIENT_PROGRESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/chart.h"
#include "client/command_line.h"
#include "snug/v1/job.pb.h"

namespace snug::client {

// Time to the last step at the pace since the first one that was seen, evaluations and checkpoints
// included; single steps vary too much on a shared machine.
class TimeLeft {
 public:
  void Add(const v1::Progress& progress, absl::Time now);
  absl::Duration Estimate() const;  // Negative when nothing is known yet.

 private:
  int64_t first_step_ = 0;
  absl::Time first_time_;
  int64_t step_ = 0;
  int64_t max_steps_ = 0;
  absl::Duration per_step_ = absl::ZeroDuration();
};

class ProgressPrinter {
 public:
  explicit ProgressPrinter(Terminal& terminal, TextOptions options = {})
      : terminal_(terminal), options_(options) {}

  // Losses of the steps that were done before; on a terminal the line shows their course.
  void AddLosses(const std::vector<double>& losses) {
    losses_.insert(losses_.end(), losses.begin(), losses.end());
  }
  // `now` limits how often a line is written: at most once a second, except that a change of state
  // always is.
  void Show(const v1::Job& job, absl::Time now);
  // Leaves the line that is drawn over, so that other text can follow.
  void FinishLine();

 private:
  void ShowState(const v1::Job& job);
  void ShowSteps(const v1::Job& job, absl::Time now);
  std::string Facts(const v1::Job& job) const;  // loss, tokens/s, memory, time left
  std::string Painted(const char* colour, const std::string& text) const;
  std::string DrawnLine(const v1::Progress& progress, const std::string& step,
                        const std::string& facts) const;

  Terminal& terminal_;
  const TextOptions options_;
  TimeLeft time_left_;
  v1::Job::State state_ = v1::Job::STATE_UNSPECIFIED;
  std::string last_state_;  // With its reason, as it was written.
  std::string last_told_;  // Step and losses of the last line.
  int64_t last_step_ = 0;  // Whose loss is the last of losses_.
  std::vector<double> losses_;
  absl::Time last_written_ = absl::InfinitePast();
  bool line_is_open_ = false;
};

// How it ended: the last line of `watch`.
void PrintEnd(const v1::Job& job, Terminal& terminal, bool colour = false);

}  // namespace snug::client

#endif  // CLIENT_PROGRESS_H_
