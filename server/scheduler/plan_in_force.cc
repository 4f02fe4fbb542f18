#include "server/scheduler/plan_in_force.h"

#include "proto/snug/enum_words.h"

namespace snug::server {

void PutInForce(const v1::Plan& plan, int64_t bytes, v1::Job& job) {
  *job.mutable_plan() = plan;
  v1::JobMemory& memory = *job.mutable_memory();
  memory.set_budget_bytes(bytes);
  memory.set_shared_bytes(plan.shared().bytes());
  memory.set_reserved_bytes(bytes - plan.shared().bytes());
  memory.set_predicted_peak_bytes(plan.peak_bytes());
  memory.set_host_bytes(plan.host_bytes());
  memory.set_plan(plan.name());
  memory.set_fidelity(LowerEnumWord(plan.fidelity()));
  memory.clear_kinds();
  for (const v1::KindShare& kind : plan.kinds())
    (*memory.mutable_kinds())[kind.kind()] = kind.share();
}

}  // namespace snug::server
