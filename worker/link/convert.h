// Messages of the link <-> plain structs, field by field. Of the product, only the two other .cc
// files of this folder include it. Whether a plan fits its program is lowering's to say.
#ifndef WORKER_LINK_CONVERT_H_
#define WORKER_LINK_CONVERT_H_

#include "absl/status/statusor.h"
#include "snug/v1/worker.pb.h"
#include "worker/program/planning/memory_look.h"
#include "worker/train/attempt.h"

namespace snug::link {

train::TrainingOptions TrainingFrom(const v1::JobSpec& spec);
int64_t DriftStepsFrom(const v1::JobSpec& spec);  // AttemptOptions::drift_steps.
program::TaskChoice TaskFrom(const v1::JobSpec& spec);
program::TrainingMode ModeFrom(const v1::JobSpec& spec);
// Errors: a way of keeping a value that this version does not know.
absl::StatusOr<program::NamedPlan> PlanFrom(const v1::Plan& plan);
program::TapeKey KeyFrom(const v1::TapeKey& key);
program::Components BytesFrom(const v1::Plan& plan);

train::AnswerOptions AnswersFrom(const v1::SampleOrder& from);

absl::StatusOr<train::PlanOrder> OrderFrom(const v1::PlanOrder& from);
v1::WorkerEvent::PlanChanged AnswerTo(const train::PlanAnswer& from);
v1::MemoryLook LookTo(const program::MemoryLook& look);
// Their part of a report.
void DriftTo(const train::TrainingProgress& progress, v1::WorkerEvent::Step& step);
v1::Progress ProgressTo(const train::TrainingProgress& progress);
v1::WorkerResult ResultTo(const train::AttemptResult& result);

}  // namespace snug::link

#endif  // WORKER_LINK_CONVERT_H_
