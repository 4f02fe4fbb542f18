// The plans of a job for scripts.
#ifndef CLIENT_PLAN_JSON_H_
#define CLIENT_PLAN_JSON_H_

#include "client/json.h"
#include "snug/v1/service.pb.h"

namespace snug::client {

// {"plans": [{name, peak_bytes, host_bytes, relative_work, step_seconds, tokens_per_second,
// fidelity, memory, kinds}], "chosen", "refusal"}, and what else there is to say. Names are in
// lower case, as in a job file; 64-bit numbers are strings, as everywhere.
Json PlansToJson(const v1::PlanJobResponse& reply);

}  // namespace snug::client

#endif  // CLIENT_PLAN_JSON_H_
