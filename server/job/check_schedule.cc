#include "server/job/check_schedule.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "proto/snug/enum_words.h"

namespace snug::server {
namespace {

using v1::LrSchedulerKwargs;
using v1::TrainingSpec;

struct ScheduleRow {
  TrainingSpec::LrSchedulerType type;
  std::vector<std::string> takes;  // Of LrSchedulerKwargs.
};

const std::vector<ScheduleRow>& Rows() {
  static const auto& rows = *new std::vector<ScheduleRow>{
      {TrainingSpec::LR_SCHEDULER_TYPE_COSINE, {"num_cycles"}},
      {TrainingSpec::LR_SCHEDULER_TYPE_COSINE_WITH_MIN_LR, {"num_cycles", "min_lr", "min_lr_rate"}},
      {TrainingSpec::LR_SCHEDULER_TYPE_COSINE_WITH_RESTARTS, {"num_cycles"}},
      {TrainingSpec::LR_SCHEDULER_TYPE_POLYNOMIAL, {"lr_end", "power"}},
      {TrainingSpec::LR_SCHEDULER_TYPE_WSD,
       {"num_stable_steps", "num_decay_steps", "warmup_type", "decay_type", "min_lr_ratio",
        "num_cycles"}}};
  return rows;
}

std::string NameOf(TrainingSpec::LrSchedulerType type) { return LowerEnumWord(type); }

std::string Field(const std::string& name) {
  return absl::StrCat("training.lr_scheduler_kwargs.", name);
}

void CheckTaken(const TrainingSpec& training, TrainingSpec::LrSchedulerType type, Checker& check) {
  const LrSchedulerKwargs& kwargs = training.lr_scheduler_kwargs();
  std::vector<const google::protobuf::FieldDescriptor*> given;
  kwargs.GetReflection()->ListFields(kwargs, &given);
  std::vector<std::string> takes;
  for (const ScheduleRow& row : Rows())
    if (row.type == type) takes = row.takes;
  for (const google::protobuf::FieldDescriptor* field : given) {
    if (std::find(takes.begin(), takes.end(), field->name()) != takes.end()) continue;
    check.Add(Field(field->name()),
              absl::StrCat(NameOf(type), takes.empty() ? " takes none" : " takes ",
                           absl::StrJoin(takes, ", ")));
  }
}

void CheckRanges(const LrSchedulerKwargs& kwargs, Checker& check) {
  const auto real = [&](const char* name, double value, double high) {
    check.Real(Field(name).c_str(), value, 0.0, high);
  };
  const auto shape = [&](const char* name, const std::string& value) {
    if (!value.empty() && value != "linear" && value != "cosine" && value != "1-sqrt")
      check.Add(Field(name), absl::StrCat("linear, cosine or 1-sqrt, not \"", value, "\""));
  };
  real("num_cycles", kwargs.num_cycles(), 1e6);
  real("min_lr", kwargs.min_lr(), 1e3);
  real("min_lr_rate", kwargs.min_lr_rate(), 1.0);
  real("lr_end", kwargs.lr_end(), 1e3);
  real("power", kwargs.power(), 1e3);
  real("min_lr_ratio", kwargs.min_lr_ratio(), 1.0);
  check.Integer(Field("num_stable_steps").c_str(), kwargs.num_stable_steps(), 0, kMaxSteps);
  check.Integer(Field("num_decay_steps").c_str(), kwargs.num_decay_steps(), 0, kMaxSteps);
  shape("warmup_type", kwargs.warmup_type());
  shape("decay_type", kwargs.decay_type());
}

}  // namespace

void CheckSchedule(const TrainingSpec& training, double learning_rate, Checker& check) {
  if (!TrainingSpec::LrSchedulerType_IsValid(training.lr_scheduler_type()))
    return check.Add("training.lr_scheduler_type", "is not known here");
  TrainingSpec::LrSchedulerType type = training.lr_scheduler_type();
  if (type == TrainingSpec::LR_SCHEDULER_TYPE_UNSPECIFIED)
    type = TrainingSpec::LR_SCHEDULER_TYPE_COSINE;
  const LrSchedulerKwargs& kwargs = training.lr_scheduler_kwargs();
  CheckTaken(training, type, check);
  CheckRanges(kwargs, check);
  if (type == TrainingSpec::LR_SCHEDULER_TYPE_COSINE_WITH_MIN_LR &&
      kwargs.has_min_lr() == kwargs.has_min_lr_rate())
    check.Add(Field("min_lr"), "cosine_with_min_lr needs min_lr or min_lr_rate, and one of them");
  if (kwargs.has_min_lr() && learning_rate == 0.0)
    check.Add(Field("min_lr"), "needs a learning_rate above 0; min_lr_rate does not");
  if (type == TrainingSpec::LR_SCHEDULER_TYPE_WSD && !kwargs.has_num_decay_steps())
    check.Add(Field("num_decay_steps"), "wsd needs it");
  const double end = kwargs.has_lr_end() ? kwargs.lr_end() : 1e-7;
  if (type == TrainingSpec::LR_SCHEDULER_TYPE_POLYNOMIAL && end >= learning_rate)
    check.Add(Field("lr_end"),
              absl::StrCat(end, " must be below learning_rate, which is ", learning_rate));
}

}  // namespace snug::server
