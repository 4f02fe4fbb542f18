// Every waiting time and count of the scheduler. A struct, so that tests can shorten what they
// would have to sit through.
#ifndef SERVER_SCHEDULER_LIMITS_H_
#define SERVER_SCHEDULER_LIMITS_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace snug::server {

struct SchedulerLimits {
  // How often locks of attempts are probed: a worker's death is noticed within it.
  absl::Duration tick = absl::Milliseconds(100);
  // A worker says Hello before it loads anything: this is LibTorch from a cold disk, many times.
  absl::Duration hello_timeout = absl::Seconds(120);
  // A tick that comes later than this finds a daemon that was stopped, or a machine that slept: it
  // has heard nobody because it did not listen.
  absl::Duration asleep = absl::Seconds(10);
  // Six missed heartbeats of 5 s: the worker is shown as unreachable.
  absl::Duration stale_after = absl::Seconds(30);
  // Then it is stuck: told to end, and killed kill_grace later.
  absl::Duration stuck_after = absl::Seconds(120);
  absl::Duration kill_grace = absl::Seconds(30);
  // What is no step (loading, evaluating, saving, exporting) and uses no processor time: a disk
  // that takes a checkpoint of 300 GB at 200 MB/s.
  absl::Duration other_work = absl::Minutes(30);
  // What is no step, however much processor time it uses: a thread that spins is no work.
  absl::Duration other_work_in_all = absl::Hours(12);
  // After its worker was killed a shim needs up to 5 s to take down what that left: then it is
  // stopped itself, and killed.
  absl::Duration shim_grace = absl::Seconds(10);
  // Between tries to close an attempt whose remains cannot be read now.
  absl::Duration close_again = absl::Seconds(1);
  // How long the files of an accepted job may be away before it fails.
  absl::Duration files_away = absl::Hours(1);
  // A cancelled worker ends at its next step boundary; nothing of it is wanted, so patience is
  // short.
  absl::Duration cancel_term = absl::Seconds(5);
  absl::Duration cancel_kill = absl::Seconds(10);
  // Progress lives in memory; a row that old is still good enough after a crash, because the worker
  // says where it is.
  absl::Duration save_progress = absl::Seconds(30);
  absl::Duration maintain_store = absl::Seconds(30);
  // How old what is shown of a GPU, or of a worker's process, may be; a look at a GPU takes the
  // driver a few milliseconds.
  absl::Duration measure_gpus = absl::Seconds(5);
  // A look that takes longer is none: nothing new goes to GPUs until their driver has answered.
  absl::Duration gpu_silence = absl::Seconds(30);
  // After a decision that could not be stored: the store itself is mended every 30 s.
  absl::Duration schedule_again = absl::Seconds(5);
  // How long neighbours have to slow a job before one of them leaves: on a machine that is shared
  // many things do, and most of them pass.
  absl::Duration interference_after = absl::Seconds(60);
  // How long who has left for a job's sake is kept off, and twice as long with each departure for
  // the same attempt: what slows a job may have passed by then.
  absl::Duration keep_off = absl::Hours(1);
  // (tenant, request_id) makes at most one job in this time.
  absl::Duration request_memory = absl::Hours(24 * 7);
  // Each takes some 10 KB of memory while it waits.
  int64_t max_live_jobs = 100'000;
  // Jobs of a user that wait for a thread to prepare them: the rest waits where it takes no more
  // memory, and is looked at once a tick.
  size_t waiting_of_a_user = 1'000;
  // What a small dataset may take of the thread that is kept for such ones; then it is queued again
  // as a large one. 64 MiB of conversations take some 15 s on two cores (docs/datasets.md).
  absl::Duration small_dataset = absl::Seconds(60);
  // Messages come faster than rounds need to: a device is free for seconds before it is missed.
  absl::Duration between_rounds = absl::Milliseconds(10);
  // Jobs that come within this time begin to be made ready together; the first begins at once.
  absl::Duration between_beginnings = absl::Milliseconds(20);
  // Who watches a job that waits is told how the queue moves.
  absl::Duration tell_waiting = absl::Seconds(1);
  // Messages that make no sense, before the attempt is ended.
  int max_bad_messages = 3;
  // More room after each out-of-memory: share of the plan's peak that is reserved on top.
  double oom_margin = 0.05;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_LIMITS_H_
