// The table of plans: what each needs, by component, and which one is taken.
#ifndef CLIENT_PLAN_TEXT_H_
#define CLIENT_PLAN_TEXT_H_

#include <ostream>
#include <vector>

#include "snug/v1/service.pb.h"

namespace snug::client {

// Kinds of a plan that take something beside their names, each as it is used.
std::vector<v1::SitesOfKind> KindsWithOptions(const v1::Plan& plan);

// Index of the chosen plan; of the smallest where none is chosen. There are plans.
int PlanShown(const v1::PlanJobResponse& reply);

void PrintPlans(const v1::PlanJobResponse& reply, std::ostream& out);
void PrintSites(const v1::PlanJobResponse& reply, std::ostream& out);

}  // namespace snug::client

#endif  // CLIENT_PLAN_TEXT_H_
