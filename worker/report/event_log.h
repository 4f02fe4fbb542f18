// The event file of an attempt: what metrics.jsonl says, as TensorBoard reads it. It follows that
// file line by line and is nothing of its own, so an attempt that goes on from another begins it
// anew with the lines that metrics.jsonl begins with, and a reader finds each step once.
//
//   file    record*                       the first is the event with file_version "brain.Event:2"
//   record  uint64 length, uint32 masked CRC-32C of these 8 bytes,
//           an Event of that length, uint32 masked CRC-32C of it          all little-endian
//   masked  ((crc >> 15) | (crc << 17)) + 0xa282ead8
//
// A line is one Event at its step and time, with a value for each of its numbers: train/loss,
// eval/loss, named as transformers' reports are. The epoch of an evaluation is left out: the lines
// of training have it. Values are float32, as TensorBoard's scalars are.
#ifndef WORKER_REPORT_EVENT_LOG_H_
#define WORKER_REPORT_EVENT_LOG_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace snug::report {

class EventLog {
 public:
  // A new file at `path` with what `metrics_file` says so far.
  static absl::StatusOr<EventLog> Create(const std::string& path, const std::string& metrics_file);

  EventLog(EventLog&& other) noexcept;
  EventLog& operator=(EventLog&&) = delete;
  ~EventLog();

  // Adds the lines that metrics_file has got since. DATA_LOSS: one of them is no line of metrics.
  absl::Status Follow();

 private:
  EventLog(std::string path, std::string metrics_file, int fd);
  absl::Status AddLine(const std::string& line);
  absl::Status AddRecord(const std::string& event);

  std::string path_;
  std::string metrics_file_;
  int fd_;
  int64_t followed_bytes_ = 0;  // Of metrics_file, all of them whole lines.
};

}  // namespace snug::report

#endif  // WORKER_REPORT_EVENT_LOG_H_
