// New jobs, on their way into the store.
#ifndef SERVER_SCHEDULER_CREATION_H_
#define SERVER_SCHEDULER_CREATION_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "server/job/records.h"
#include "server/scheduler/entry.h"

namespace snug::server {

struct SchedulerCore;

// A part of the scheduler. Replies come on its thread, after the commit.
class Creation {
 public:
  using Reply = std::function<void(absl::StatusOr<v1::Job>)>;

  explicit Creation(SchedulerCore& core) : core_(core) {}

  // `last_order`: of the jobs that the store knows.
  void BeginAfter(int64_t last_order) { next_order_ = last_order + 1; }
  void Create(CreateOrder order, const Reply& reply);

 private:
  absl::Status MayBeMade(const CreateOrder& order) const;
  void Draw(CreateOrder order, const Reply& reply, int draws_left);
  void OnCreated(const std::shared_ptr<NewJob>& job, CreateOrder order, const Reply& reply);

  SchedulerCore& core_;
  int64_t next_order_ = 1;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_CREATION_H_
