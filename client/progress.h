// What `watch` shows of a stream of jobs: on a terminal a line that is drawn over and over, else
// lines to keep.
#ifndef CLIENT_PROGRESS_H_
#define CLIENT_PROGRESS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
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
  // `columns` is the terminal's width.
  ProgressPrinter(Terminal& terminal, int columns) : terminal_(terminal), columns_(columns) {}

  // `now` limits how often a line is written: at most once a second, except that a change of state
  // always is.
  void Show(const v1::Job& job, absl::Time now);
  // Leaves the line that is drawn over, so that other text can follow.
  void FinishLine();

 private:
  void ShowState(const v1::Job& job);
  void ShowSteps(const v1::Job& job, absl::Time now);
  std::string Facts(const v1::Job& job) const;  // loss, tokens/s, memory, time left

  Terminal& terminal_;
  const int columns_;
  TimeLeft time_left_;
  std::string last_state_;
  std::string last_told_;  // Step and losses of the last line.
  absl::Time last_written_ = absl::InfinitePast();
  bool line_is_open_ = false;
};

// How it ended: the last line of `watch`.
void PrintEnd(const v1::Job& job, Terminal& terminal);

}  // namespace snug::client

#endif  // CLIENT_PROGRESS_H_
