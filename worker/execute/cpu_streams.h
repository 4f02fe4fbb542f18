// Streams of the CPU: number 0 is the thread that calls, every other one a thread of its own, made
// when it is first used. What is issued on a stream runs in order, beside what runs on others.
#ifndef WORKER_EXECUTE_CPU_STREAMS_H_
#define WORKER_EXECUTE_CPU_STREAMS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

namespace snug::execute {

// Called by one thread. Tasks must not throw.
class CpuStreams {
 public:
  using Task = std::function<void()>;

  // `before_each`: what a stream's thread does before each task; tests delay tasks by it.
  explicit CpuStreams(Task before_each = {});
  // Behind all that was issued.
  ~CpuStreams();
  CpuStreams(const CpuStreams&) = delete;
  CpuStreams& operator=(const CpuStreams&) = delete;

  // On stream 0 it has run when this returns.
  void Issue(int stream, Task task);
  // An event stands for all that was issued on the stream so far; it may be recorded again.
  void Record(int event, int stream);
  // What is issued on the stream from here on runs behind what the event stands for.
  // std::out_of_range: nothing has recorded it.
  void Wait(int event, int stream);
  // Until all streams have run what was issued. Nothing is recorded any more.
  void Synchronize();

 private:
  class Thread;
  // The n-th task of a stream; of none where the event was recorded on stream 0, whose tasks have
  // run.
  struct Point {
    Thread* stream = nullptr;
    int64_t task = 0;
  };

  Thread& ThreadOf(int stream);

  const Task before_each_;
  std::map<int, std::unique_ptr<Thread>> threads_;
  std::map<int, Point> events_;
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_CPU_STREAMS_H_
