// When a tape's copies run, of all the orders that its streams and events allow.
#ifndef TESTS_WORKER_PROGRAM_COPY_ORDER_H_
#define TESTS_WORKER_PROGRAM_COPY_ORDER_H_

#include <functional>
#include <vector>

#include "worker/execute/cpu_streams.h"
#include "worker/program/tape.h"

namespace snug::program {

// As soon as they are issued; or as late as what computes waits for them; or on `streams`.
class CopyOrder {
 public:
  void Delay() { late_ = true; }
  void Use(execute::CpuStreams& streams) { streams_ = &streams; }

  void Issue(const Instruction& line, std::function<void()> copy);
  void Order(const Instruction& line);  // kRecord, kWait

 private:
  bool late_ = false;
  execute::CpuStreams* streams_ = nullptr;
  std::vector<std::function<void()>> waiting_;
};

}  // namespace snug::program

#endif  // TESTS_WORKER_PROGRAM_COPY_ORDER_H_
