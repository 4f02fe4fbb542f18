// What a device has to give in one round. Pure.
//
// Until a job has to wait for the device, all that is free is anybody's. The first that waits (the
// head) has a reserved start: the moment at which, by the estimated ends of what runs, its smallest
// plan fits. Those behind it are given only what will not be missed then, however long they run:
//   - what is left beside the head at its reserved start, and
//   - all of them together, no more than the capacity holds beside the head.
// By the first the reserved start does not move as long as the estimates hold. By the second, which
// needs no estimates, the head waits at most for the jobs that ran when it became the head. Of the
// jobs that a device may run at once none is kept: the head waits for an end, and is asked first.
#ifndef SERVER_PLACE_ROOM_H_
#define SERVER_PLACE_ROOM_H_

#include <cstdint>
#include <optional>
#include <string>

#include "server/place/policy.h"

namespace snug::server {

// Bytes of the smallest plan that the empty device would hold; -1: there is none.
int64_t LeastOn(const QueuedJob& job, const DeviceState& device);

// Whether a job of that place in line is kept off by one that runs there and is ahead of it.
bool IsKeptOff(const JobQueue::Key& key, const DeviceState& device);

class Room {
 public:
  explicit Room(DeviceState device) : device_(std::move(device)) {}

  const DeviceState& device() const { return device_; }
  bool kept() const { return left_.has_value(); }  // Somebody waits for it.

  // Bytes that the next job may be given; -1: nothing is placed there.
  int64_t Offer() const;
  int64_t Free() const;  // The same, did nobody wait.
  // What the job's owner may still be given there.
  int64_t ShareLeft(const QueuedJob& job) const;
  // Whether the job's smallest plan is no more than that.
  bool WithinShare(const QueuedJob& job) const;
  // The same, and the job is not kept off: all that it may have to wait for there is room.
  bool MayTake(const QueuedJob& job) const;
  // That the next job may have: the share of one more beside those that are there.
  int Threads() const;
  // Index of the job's fastest plan that it may be given now, within its budget and Threads(); or
  // -1. What it shares with jobs that are there takes nothing more.
  int Fastest(const QueuedJob& job) const;

  void Place(const QueuedJob& job, int64_t bytes);
  // Some job was given so much of the host's memory, here or elsewhere.
  void TakeHost(int64_t bytes) { device_.host_free_bytes -= bytes; }
  // It waits for the device, unless another one does already, or the device may not take it now.
  // Where all its plans use the host's memory, those behind it are given none.
  void KeepFor(const QueuedJob& job);

  // Why the job cannot have what it needs at least, were nobody ahead of it; empty: it could.
  std::string ReasonFor(const QueuedJob& job) const;

 private:
  // A job there, ahead of this one, bears nobody more.
  bool KeepsOff(const QueuedJob& job) const;
  // Bytes that are left beside the head.
  int64_t BesideAllBehind(const QueuedJob& head, int64_t needs) const;
  int64_t AtReservedStart(const QueuedJob& head, int64_t needs) const;
  SharedWeights SharedBy(const QueuedJob& job) const;  // Here.
  struct Limits {
    int64_t free = INT64_MAX;  // Now,
    int64_t left = INT64_MAX;  // and beside the head at its start.
    int64_t host = INT64_MAX;
  };
  int FastestWithin(const QueuedJob& job, const Limits& limits) const;
  // That a job will take of what is left beside the head: with it alone it is sure to share then.
  int64_t BesideHead(int64_t bytes, const SharedWeights& shared) const {
    return !shared.digest.empty() && shared == head_shared_ ? bytes - shared.bytes : bytes;
  }

  DeviceState device_;
  std::optional<int64_t> left_;  // Once there is a head: what those behind it may still have.
  SharedWeights head_shared_;
};

}  // namespace snug::server

#endif  // SERVER_PLACE_ROOM_H_
