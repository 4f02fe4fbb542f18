// A plan by the names of its sites, as it is stored and sent: a program that has other values than
// the one it was made for cannot mistake it, nor a version that knows other ways of keeping them.
#ifndef WORKER_PROGRAM_PLANNING_NAMED_PLAN_H_
#define WORKER_PROGRAM_PLANNING_NAMED_PLAN_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/plan.h"

namespace snug::program {

struct NamedRecipe {
  std::map<std::string, SiteStash> stashes;  // By Value::site: each value but companions.
};

struct NamedPlan {
  std::string name;
  std::vector<NamedRecipe> recipes;
  std::vector<int> layer_recipe;  // Per decoder block, an index into recipes.
};

NamedPlan NamedPlanOf(const Program& program, const Plan& plan);

// Errors, by name: a site that a layer's block does not have, one that a recipe says nothing of,
// another number of layers than the program's.
absl::StatusOr<Plan> PlanOf(const Program& program, const NamedPlan& named);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PLANNING_NAMED_PLAN_H_
