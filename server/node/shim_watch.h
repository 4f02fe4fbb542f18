// Whether an attempt's shim lives, asked through descriptors that stay open.
#ifndef SERVER_NODE_SHIM_WATCH_H_
#define SERVER_NODE_SHIM_WATCH_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "server/node/node.h"

namespace snug::server {

// Holds the attempt's lock file and its shim's pidfd open, so that neither the answer nor a signal
// needs a descriptor later on, and neither follows a path that somebody has changed meanwhile.
// What could not be opened is tried again at each question. For one thread.
class ShimWatch {
 public:
  explicit ShimWatch(std::string attempt_dir);
  // Of an earlier life of the daemon; `shim` 0: the number is read from the lock, and where it
  // cannot be read yet, read again before the next signal.
  static std::unique_ptr<ShimWatch> Adopt(std::string attempt_dir, pid_t shim);
  ~ShimWatch();
  ShimWatch(const ShimWatch&) = delete;
  ShimWatch& operator=(const ShimWatch&) = delete;

  // `shim` was just started by this process, or is what the rows say of an earlier life: such a
  // one is believed only if it leads a session of its own and carries the attempt's mark.
  void Follow(pid_t shim, bool just_started);

  // By the lock: the kernel's word. One that was never made in a folder that is there is free.
  Liveness Look();

  // To the shim itself, never to a stranger with its number. NOT_FOUND: no such process. Another
  // error of this and of SignalOthers: who that is cannot be found out now.
  absl::Status Signal(int signal);
  // To all of its session but the shim.
  absl::Status SignalOthers(int signal);

 private:
  absl::Status FindNumber();
  bool OpenProcess();

  const std::string attempt_dir_;
  int lock_ = -1;
  int process_ = -1;  // A pidfd.
  pid_t shim_ = 0;
  bool just_started_ = false;
  bool asks_lock_ = false;  // For the shim's number, while nobody has said it.
};

}  // namespace snug::server

#endif  // SERVER_NODE_SHIM_WATCH_H_
