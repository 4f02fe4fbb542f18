// The table of plans: what each needs, by component, and which one is taken.
#ifndef CLIENT_PLAN_TEXT_H_
#define CLIENT_PLAN_TEXT_H_

#include <ostream>

#include "snug/v1/service.pb.h"

namespace snug::client {

void PrintPlans(const v1::PlanJobResponse& reply, std::ostream& out);
void PrintSites(const v1::PlanJobResponse& reply, std::ostream& out);

}  // namespace snug::client

#endif  // CLIENT_PLAN_TEXT_H_
