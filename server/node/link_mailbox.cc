#include "server/node/link_mailbox.h"

#include <utility>

namespace snug::server {

void LinkMailbox::Put(v1::WorkerEvent event) {
  switch (event.event_case()) {
    case v1::WorkerEvent::kHello:
      hello_ = std::move(event);
      break;
    case v1::WorkerEvent::kStep:
      step_ = std::move(event);
      break;
    case v1::WorkerEvent::kCheckpoint:
      checkpoints_.push_back(std::move(event));
      if (checkpoints_.size() > kMaxCheckpoints) checkpoints_.pop_front();
      break;
    case v1::WorkerEvent::kPlanChanged:
      plan_changed_ = std::move(event);
      break;
    case v1::WorkerEvent::kShortage:
      shortage_ = std::move(event);
      break;
    case v1::WorkerEvent::kFinished:
      finished_ = std::move(event);
      break;
    default:  // What a newer worker says beside: that it lives.
      heartbeat_ = std::move(event);
  }
}

std::vector<v1::WorkerEvent> LinkMailbox::Take() {
  std::vector<v1::WorkerEvent> events;
  const auto add = [&](std::optional<v1::WorkerEvent>& event) {
    if (event) events.push_back(*std::exchange(event, std::nullopt));
  };
  add(hello_);
  for (v1::WorkerEvent& checkpoint : checkpoints_) events.push_back(std::move(checkpoint));
  checkpoints_.clear();
  add(step_);
  add(plan_changed_);
  add(shortage_);
  add(heartbeat_);
  add(finished_);
  return events;
}

}  // namespace snug::server
