// A device that jobs are kept off, as the store remembers it.
#ifndef SERVER_JOB_DRAIN_RECORD_H_
#define SERVER_JOB_DRAIN_RECORD_H_

#include <string>

namespace snug::server {

struct DrainRecord {
  std::string device;   // Its Device::id().
  bool drained = true;  // False: it is one like others again.
  bool move = false;    // Jobs that run there go back to the queue.
};

}  // namespace snug::server

#endif  // SERVER_JOB_DRAIN_RECORD_H_
