#include "worker/link/assignment.h"

#include <google/protobuf/util/json_util.h>

#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/json.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/new_file.h"
#include "worker/link/convert.h"

namespace snug::link {
namespace {

absl::Status CheckAssignment(const v1::Assignment& assignment, const std::string& path) {
  const std::pair<const char*, bool> present[] = {
      {"job_id", !assignment.job_id().empty()},
      {"epoch", assignment.epoch() > 0},
      {"spec.model", !assignment.spec().model().empty()},
      {"spec.method", assignment.spec().method() != v1::JobSpec::METHOD_UNSPECIFIED},
      {"plan.key", assignment.plan().key().tokens() > 0},
      {"plan.memory", assignment.plan().has_memory()},
      {"plan.threads", assignment.plan().threads() > 0},
      {"train_data", !assignment.train_data().empty() || assignment.has_sample()},
      {"prompts", !assignment.prompts().empty() || !assignment.has_sample()},
      {"attempt_dir", !assignment.attempt_dir().empty()},
      {"checkpoints_dir", !assignment.checkpoints_dir().empty()},
      {"cap_bytes", assignment.cap_bytes() > 0}};
  for (const auto& [field, there] : present) {
    if (!there) return absl::InvalidArgumentError(absl::StrCat(path, ": ", field, " is missing"));
  }
  return absl::OkStatus();
}

program::OpenedFiles OpenedFrom(const v1::OpenedFiles& from) {
  program::OpenedFiles to;
  to.folders = {from.folders().begin(), from.folders().end()};
  for (const v1::OpenedFiles::File& file : from.files())
    to.files[file.path()] = {.device = file.device(),
                             .inode = file.inode(),
                             .bytes = file.bytes(),
                             .modified_ns = file.modified_ns()};
  return to;
}

std::string NameOfFile(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

absl::StatusOr<train::AttemptOptions> ReadAssignment(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("no assignment at ", path));
  v1::Assignment from;
  if (!from.ParseFromIstream(&file))
    return absl::InvalidArgumentError(absl::StrCat(path, ": not an assignment"));
  RETURN_IF_ERROR(CheckAssignment(from, path));
  train::AttemptOptions to;
  to.job_id = from.job_id();
  to.parent_job = from.parent_job();
  to.begin_step = from.begin_step();
  to.epoch = from.epoch();
  to.nonce = from.nonce();
  to.link_socket = from.link_socket();
  to.opened = OpenedFrom(from.opened());
  to.model_dir = from.spec().model();
  to.base_model_name =
      from.base_model_name().empty() ? from.spec().model() : from.base_model_name();
  to.added_tokens = {from.spec().added_tokens().begin(), from.spec().added_tokens().end()};
  to.task = TaskFrom(from.spec());
  to.mode = ModeFrom(from.spec());
  to.init_adapter = from.spec().lora().init_adapter();
  if (!from.plan().shared().digest().empty() && !from.shared_weights_dir().empty())
    to.shared_weights = from.shared_weights_dir() + "/" + from.plan().shared().digest();
  to.merge = from.spec().merge();
  to.training = TrainingFrom(from.spec());
  ASSIGN_OR_RETURN(to.plan, PlanFrom(from.plan()));
  to.key = KeyFrom(from.plan().key());
  if (!from.device().empty()) to.device = from.device();
  to.threads = from.plan().threads();
  to.head_rows = from.plan().head_rows();
  to.drift_steps = DriftStepsFrom(from.spec());
  to.drift_step = from.drift_step();
  to.context_bytes = from.context_bytes();
  to.unseen_bytes = from.unseen_bytes();
  to.products = from.products();
  to.cap_bytes = from.cap_bytes();
  to.promised = BytesFrom(from.plan());
  to.train_data = from.train_data();
  to.eval_data = from.eval_data();
  to.prompts_file = from.prompts();
  const std::string& dataset = from.spec().dataset();
  to.train_file = NameOfFile(dataset);
  to.eval_file =
      NameOfFile(from.spec().eval_dataset().empty() ? dataset : from.spec().eval_dataset());
  to.attempt_dir = from.attempt_dir();
  to.checkpoints_dir = from.checkpoints_dir();
  to.resume_from = from.resume_from();
  to.start_from = from.start_from();
  to.previous_metrics = from.previous_metrics();
  if (from.has_sample()) to.answers = AnswersFrom(from.sample());
  return to;
}

absl::StatusOr<SpecOptions> ParseSpecJson(const std::string& json) {
  v1::JobSpec spec;
  const absl::Status parsed = JsonToMessage(json, UnknownFields::kRefused, &spec);
  if (!parsed.ok()) return absl::InvalidArgumentError(absl::StrCat("job spec: ", parsed.message()));
  return SpecOptions{
      .task = TaskFrom(spec), .mode = ModeFrom(spec), .training = TrainingFrom(spec)};
}

absl::Status WriteResult(const std::string& attempt_dir, const train::AttemptResult& result) {
  const auto json = MessageToJson(ResultTo(result));
  if (!json.ok())
    return absl::InternalError(absl::StrCat("result.json: ", json.status().message()));
  return checkpoint::ReplaceFile(attempt_dir + "/result.json", json->dump() + "\n");
}

}  // namespace snug::link
