// When what a tape gives to other streams than the one that computes runs, of all the orders that
// its streams and events allow: copies, and recoveries that run ahead.
#ifndef TESTS_WORKER_PROGRAM_COPY_ORDER_H_
#define TESTS_WORKER_PROGRAM_COPY_ORDER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <random>

#include "worker/execute/cpu_streams.h"
#include "worker/program/tape.h"

namespace snug::program {

// As soon as it is issued; or as late as what computes waits for it; or at random moments between;
// or on `streams`.
class CopyOrder {
 public:
  void Delay() { late_ = true; }
  void DelayAtRandom(uint32_t seed) {
    late_ = true;
    random_.emplace(seed);
  }
  void Use(execute::CpuStreams& streams) { streams_ = &streams; }

  void Begin();  // Another tape: nothing waits any more.
  void Issue(const Instruction& line, std::function<void()> run);
  void Order(const Instruction& line);  // kRecord, kWait
  // Between two lines of the stream that computes: some of what waits runs, if moments are random.
  void Go();

 private:
  // A stream runs up to one of its tasks, by number.
  struct Point {
    uint8_t stream = kComputeStream;
    int64_t task = 0;
  };
  struct Task {
    std::function<void()> run;
    Point behind;  // Of a wait: what has to have run.
  };
  struct Stream {
    std::deque<Task> waiting;
    int64_t done = 0;
  };

  void RunFirst(Stream& stream);
  void RunUpTo(const Point& point);

  bool late_ = false;
  execute::CpuStreams* streams_ = nullptr;
  std::optional<std::mt19937> random_;
  std::map<uint8_t, Stream> late_streams_;  // Those that do not compute.
  std::map<int16_t, Point> events_;
};

}  // namespace snug::program

#endif  // TESTS_WORKER_PROGRAM_COPY_ORDER_H_
