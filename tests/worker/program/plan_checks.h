// What every program must hold whatever its plan: gradients bitwise those of keeping everything,
// and those of finite differences. On a toy batch, by the interpreter.
#ifndef TESTS_WORKER_PROGRAM_PLAN_CHECKS_H_
#define TESTS_WORKER_PROGRAM_PLAN_CHECKS_H_

#include <random>
#include <vector>

#include "worker/program/plan.h"
#include "worker/program/program.h"

namespace snug::program {

// `plans` random ones, and each number of whole layers. Of the random ones a third draws from all
// stashes, a third from all but chunk, whose sums have another order, and a third from keep and
// recompute; every second may run segments of several blocks again.
void ExpectAnyPlanGivesTheGradientsOfKeep(const Program& program, int plans, std::mt19937& random);

void ExpectTheGradientsOfKeep(const Program& program, const std::vector<Plan>& plans,
                              std::mt19937& random);

// Random plans of keep, recompute and offload, whose copies run as soon as they are issued, as late
// as something waits for them, and on a thread of their own with delays drawn at random.
void ExpectAnyOrderOfCopiesGivesTheGradientsOfKeep(const Program& program, int plans,
                                                   std::mt19937& random);

// These plans, whose copies and recoveries ahead run as soon as they are issued, as late as
// something waits for them, at random moments between, and on threads of their own with delays
// drawn at random: loss and gradients are those of `expected`, a plan for each of them.
void ExpectAnyOrderGivesTheGradientsOf(const Program& program, const std::vector<Plan>& plans,
                                       const std::vector<Plan>& expected, std::mt19937& random);

// Without one of the waits for a copy from the host, one that runs late comes too late.
void ExpectEachWaitForACopyMatters(const Program& program, const Plan& plan, std::mt19937& random);

// What `plan` runs again draws masks of its own: its gradients are other ones, its loss is not.
void ExpectOtherMasksAgainChangeTheGradients(const Program& program, const Plan& plan,
                                             std::mt19937& random);

// The two programs differ in whether gradients are released: these are the same, under any plan.
void ExpectTheSameReleased(const Program& kept, const Program& released, int plans,
                           std::mt19937& random);

// `coded` holds activations' inputs in two bits, `exact` does not: with a slope of their own, that
// of a straight line, the gradients of `coded` are other ones, those of `exact` the same.
void ExpectOnlyTwoBitsChangeTheGradients(const Program& program, const Plan& coded,
                                         const Plan& exact, std::mt19937& random);

// Central differences of the tape's own loss, of an element of each trained parameter.
void ExpectFiniteDifferences(const Program& program, std::mt19937& random);

}  // namespace snug::program

#endif  // TESTS_WORKER_PROGRAM_PLAN_CHECKS_H_
