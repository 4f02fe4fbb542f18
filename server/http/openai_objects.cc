#include "server/http/openai_objects.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "google/protobuf/util/time_util.h"
#include "google/rpc/error_details.pb.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/upload/uploads.h"
#include "worker/program/files/json.h"

namespace snug::server {
namespace {

using google::protobuf::util::TimeUtil;
using nlohmann::json;

constexpr program::JsonLimits kBodyLimits = {.bytes = 256 << 10, .values = 10'000, .depth = 8};
constexpr program::JsonLimits kLineLimits = {.bytes = 64 << 10, .values = 1'000, .depth = 4};
constexpr double kLearningRate = 2e-4;  // A job file's default for LoRA: a multiplier of 1.
constexpr double kMostWhole = 9e15;     // Below it a double holds each whole number.
constexpr const char* kParamPayload = "snug/param";
constexpr const char* kAuto = "auto";

// Our fields, where that API has others for the same.
constexpr std::pair<const char*, const char*> kParams[] = {
    {"spec.dataset", "training_file"},
    {"spec.eval_dataset", "validation_file"},
    {"spec.model", "model"},
    {"spec.labels", "metadata"},
    {"spec.display_name", "suffix"},
    {"spec.training.num_train_epochs", "hyperparameters.n_epochs"},
    {"spec.training.per_device_train_batch_size", "hyperparameters.batch_size"},
    {"spec.training.learning_rate", "hyperparameters.learning_rate_multiplier"},
    {"spec.training.seed", "seed"},
    {"header.filename", "file"},
};

const char* TypeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return "rate_limit_error";
    case absl::StatusCode::kUnauthenticated:
      return "authentication_error";
    case absl::StatusCode::kPermissionDenied:
      return "permission_error";
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
      return "server_error";
    default:
      return "invalid_request_error";
  }
}

// The keys of an object, each taken once; what is left nobody knows.
class Fields {
 public:
  Fields(const json& object, std::string path) : left_(object), path_(std::move(path)) {}

  // Null: it is not there, or is null.
  std::optional<json> Take(const std::string& key) {
    const auto found = left_.find(key);
    if (found == left_.end()) return std::nullopt;
    json value = *found;
    left_.erase(found);
    return value.is_null() ? std::nullopt : std::optional(std::move(value));
  }

  absl::StatusOr<std::string> Text(const std::string& key) {
    const std::optional<json> value = Take(key);
    if (!value) return std::string();
    if (value->is_string()) return value->get<std::string>();
    return WrongParam(path_ + key, "must be a string");
  }

  // Nothing for "auto" as well.
  absl::StatusOr<std::optional<double>> Number(const std::string& key) {
    const std::optional<json> value = Take(key);
    if (!value || *value == kAuto) return std::optional<double>();
    if (value->is_number()) return std::optional<double>(value->get<double>());
    return WrongParam(path_ + key, "must be a number or \"auto\"");
  }

  absl::Status NothingIsLeft() const {
    if (left_.empty()) return absl::OkStatus();
    return WrongParam(path_ + left_.begin().key(), "is not offered here");
  }

 private:
  json left_;
  const std::string path_;
};

// hyperparameters, and those of method.supervised, which are the same.
absl::Status TakeHyperparameters(const json& object, const std::string& path, v1::JobSpec& spec) {
  if (!object.is_object()) return WrongParam(path, "must be an object");
  Fields fields(object, path + ".");
  ASSIGN_OR_RETURN(const auto epochs, fields.Number("n_epochs"));
  ASSIGN_OR_RETURN(const auto rows, fields.Number("batch_size"));
  ASSIGN_OR_RETURN(const auto multiplier, fields.Number("learning_rate_multiplier"));
  RETURN_IF_ERROR(fields.NothingIsLeft());
  v1::TrainingSpec& training = *spec.mutable_training();
  if (epochs) training.set_num_train_epochs(*epochs);
  if (multiplier) training.set_learning_rate(*multiplier * kLearningRate);
  if (!rows) return absl::OkStatus();
  if (*rows < 1 || *rows > 1 << 20 || *rows != std::floor(*rows))
    return WrongParam(path + ".batch_size", "must be a whole number from 1");
  training.set_per_device_train_batch_size(static_cast<int32_t>(*rows));
  training.set_packing(false);  // So many rows a step, and not so many full ones.
  return absl::OkStatus();
}

absl::Status TakeMethod(const json& object, v1::JobSpec& spec) {
  if (!object.is_object()) return WrongParam("method", "must be an object");
  Fields fields(object, "method.");
  ASSIGN_OR_RETURN(const std::string type, fields.Text("type"));
  if (type != "supervised")
    return WrongParam("method.type", absl::StrCat("\"", type, "\" is not offered; supervised is"));
  if (const auto supervised = fields.Take("supervised")) {
    if (!supervised->is_object()) return WrongParam("method.supervised", "must be an object");
    Fields inner(*supervised, "method.supervised.");
    if (const auto numbers = inner.Take("hyperparameters"))
      RETURN_IF_ERROR(TakeHyperparameters(*numbers, "method.supervised.hyperparameters", spec));
    RETURN_IF_ERROR(inner.NothingIsLeft());
  }
  return fields.NothingIsLeft();
}

absl::Status TakeMetadata(const json& object, v1::JobSpec& spec) {
  if (!object.is_object()) return WrongParam("metadata", "must be an object of strings");
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string()) return WrongParam("metadata." + key, "must be a string");
    (*spec.mutable_labels())[key] = value.get<std::string>();
  }
  return absl::OkStatus();
}

int64_t Seconds(const google::protobuf::Timestamp& time) {
  return TimeUtil::TimestampToSeconds(time);
}

json TimeOrNull(bool known, const google::protobuf::Timestamp& time) {
  return known ? json(Seconds(time)) : json();
}

json TextOrNull(absl::string_view text) { return text.empty() ? json() : json(std::string(text)); }

const char* StatusName(v1::Job::State state) {
  switch (state) {
    case v1::Job::STATE_PREPARING:
      return "validating_files";
    case v1::Job::STATE_RUNNING:
    case v1::Job::STATE_PAUSING:
    case v1::Job::STATE_CANCELLING:
      return "running";
    case v1::Job::STATE_PAUSED:
      return "paused";
    case v1::Job::STATE_SUCCEEDED:
      return "succeeded";
    case v1::Job::STATE_FAILED:
      return "failed";
    case v1::Job::STATE_CANCELLED:
      return "cancelled";
    default:
      return "queued";
  }
}

// The id of an uploaded file, where the path is of one.
std::string FileNamed(const std::string& dataset) {
  for (const absl::string_view part : absl::StrSplit(dataset, '/'))
    if (IsFileId(part)) return std::string(part);
  return dataset;
}

// Clients expect whole numbers without a point.
json Number(double value) {
  return value == std::floor(value) && std::abs(value) < kMostWhole
             ? json(static_cast<int64_t>(value))
             : json(value);
}

json Hyperparameters(const v1::TrainingSpec& training) {
  json numbers = {{"n_epochs", kAuto}, {"batch_size", kAuto}, {"learning_rate_multiplier", kAuto}};
  if (training.has_num_train_epochs()) numbers["n_epochs"] = Number(training.num_train_epochs());
  if (training.per_device_train_batch_size() > 0)
    numbers["batch_size"] = training.per_device_train_batch_size();
  if (training.has_learning_rate())
    numbers["learning_rate_multiplier"] = Number(training.learning_rate() / kLearningRate);
  return numbers;
}

// By that API's name, where it has one.
std::string ParamOfField(const std::string& field) {
  for (const auto& [ours, theirs] : kParams)
    if (field == ours || absl::StartsWith(field, absl::StrCat(ours, "."))) return theirs;
  return field;
}

json ErrorOf(const v1::Job& job) {
  if (job.state() != v1::Job::STATE_FAILED) return json();
  return {{"code", job.error().reason()},
          {"message", job.error().message()},
          {"param", TextOrNull(ParamOfField(job.error().field()))}};
}

class Events {
 public:
  explicit Events(std::string job) : job_(std::move(job)) {}

  void Add(int64_t at, const std::string& message, const char* type = "message",
           json data = json::object()) {
    objects_.push_back({{"object", "fine_tuning.job.event"},
                        {"id", absl::StrCat("ftevent-", job_, "-", objects_.size())},
                        {"created_at", at},
                        {"level", "info"},
                        {"message", message},
                        {"type", type},
                        {"data", std::move(data)}});
  }
  void Fail() { objects_.back()["level"] = "error"; }
  std::vector<json> NewestFirst() && {
    std::reverse(objects_.begin(), objects_.end());
    return std::move(objects_);
  }

 private:
  const std::string job_;
  std::vector<json> objects_;
};

// A line of metrics.jsonl as that API spells what it has of it.
void AddStep(const json& line, int64_t steps, Events& events) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"loss", "train_loss"},
      {"mean_token_accuracy", "train_mean_token_accuracy"},
      {"eval_loss", "valid_loss"},
      {"eval_mean_token_accuracy", "valid_mean_token_accuracy"}};
  const auto number = [&](const char* name) {
    return line.contains(name) && line[name].is_number() ? line[name].get<double>() : 0.0;
  };
  // 0 where no whole number is near: a cast of what int64_t does not hold may give anything.
  const auto whole = [&](const char* name) {
    const double value = number(name);
    return std::abs(value) < kMostWhole ? static_cast<int64_t>(value) : 0;
  };
  const int64_t step = whole("global_step");
  json data = {{"step", step}, {"total_steps", steps}};
  std::string message = absl::StrCat("Step ", step, "/", steps);
  for (const auto& [ours, theirs] : kNames) {
    if (!line.contains(ours)) continue;
    data[theirs] = line[ours];
    absl::StrAppend(&message, message.find(':') == std::string::npos ? ": " : ", ", theirs, "=",
                    number(ours));
  }
  events.Add(whole("time"), message, "metrics", std::move(data));
}

}  // namespace

absl::Status WrongParam(absl::string_view param, absl::string_view message) {
  absl::Status status = absl::InvalidArgumentError(absl::StrCat(param, ": ", message));
  status.SetPayload(kParamPayload, absl::Cord(param));
  return status;
}

std::string ParamOf(const absl::Status& status) {
  if (const auto param = status.GetPayload(kParamPayload)) return std::string(*param);
  const auto payload = status.GetPayload("type.googleapis.com/google.rpc.BadRequest");
  google::rpc::BadRequest request;
  if (!payload || !request.ParseFromString(std::string(*payload)) ||
      request.field_violations().empty())
    return "";
  return ParamOfField(request.field_violations(0).field());
}

std::string ErrorBody(const absl::Status& status) {
  return json{{"error",
               {{"message", std::string(status.message())},
                {"type", TypeOf(status)},
                {"param", TextOrNull(ParamOf(status))},
                {"code", ReasonOf(status)}}}}
             .dump(-1, ' ', false, json::error_handler_t::replace) +
         "\n";
}

absl::StatusOr<v1::JobSpec> SpecOf(absl::string_view body) {
  const absl::StatusOr<json> parsed =
      program::ParseJson(std::string_view(body.data(), body.size()), "the body", kBodyLimits);
  if (!parsed.ok()) return absl::InvalidArgumentError(parsed.status().message());
  if (!parsed->is_object()) return absl::InvalidArgumentError("the body must be an object");
  Fields fields(*parsed, "");
  v1::JobSpec spec;
  spec.set_method(v1::JobSpec::METHOD_LORA);
  ASSIGN_OR_RETURN(*spec.mutable_model(), fields.Text("model"));
  ASSIGN_OR_RETURN(*spec.mutable_dataset(), fields.Text("training_file"));
  ASSIGN_OR_RETURN(*spec.mutable_eval_dataset(), fields.Text("validation_file"));
  ASSIGN_OR_RETURN(*spec.mutable_display_name(), fields.Text("suffix"));
  if (spec.model().empty())
    return WrongParam("model", "is needed: a model's folder, or a job's id");
  if (spec.dataset().empty()) return WrongParam("training_file", "is needed: a file's id");
  ASSIGN_OR_RETURN(const auto seed, fields.Number("seed"));
  if (seed && (*seed < 0 || *seed != std::floor(*seed) || *seed > kMostWhole))
    return WrongParam("seed", "must be a whole number from 0");
  if (seed) spec.mutable_training()->set_seed(static_cast<int64_t>(*seed));
  const auto numbers = fields.Take("hyperparameters"), method = fields.Take("method");
  if (numbers && method)
    return WrongParam("hyperparameters", "stands in method, where that is given");
  if (numbers) RETURN_IF_ERROR(TakeHyperparameters(*numbers, "hyperparameters", spec));
  if (method) RETURN_IF_ERROR(TakeMethod(*method, spec));
  if (const auto metadata = fields.Take("metadata")) RETURN_IF_ERROR(TakeMetadata(*metadata, spec));
  RETURN_IF_ERROR(fields.NothingIsLeft());
  return spec;
}

json JobObject(const v1::Job& job) { return JobObject(job, job.id()); }

json JobObject(const v1::Job& job, const std::string& id) {
  const v1::JobSpec& spec = job.spec();
  const bool succeeded = job.state() == v1::Job::STATE_SUCCEEDED;
  const json numbers = Hyperparameters(spec.training());
  json metadata = json::object();
  for (const auto& [key, value] : job.labels()) metadata[key] = value;
  return {{"object", "fine_tuning.job"},
          {"id", id},
          {"created_at", Seconds(job.create_time())},
          {"finished_at", TimeOrNull(job.has_end_time(), job.end_time())},
          {"error", ErrorOf(job)},
          {"fine_tuned_model", TextOrNull(!succeeded       ? ""
                                          : id == job.id() ? id
                                                           : job.name())},
          {"hyperparameters", numbers},
          {"method", {{"type", "supervised"}, {"supervised", {{"hyperparameters", numbers}}}}},
          {"metadata", metadata},
          {"model", spec.model()},
          {"organization_id", job.owner()},
          {"result_files", json::array()},
          {"integrations", json::array()},
          {"seed", spec.training().has_seed() ? spec.training().seed() : 42},
          {"status", StatusName(job.state())},
          {"trained_tokens", succeeded ? json(job.progress().num_tokens()) : json()},
          {"training_file", FileNamed(spec.dataset())},
          {"validation_file", TextOrNull(FileNamed(spec.eval_dataset()))},
          {"user_provided_suffix", TextOrNull(spec.display_name())},
          {"estimated_finish", json()}};
}

json FileObject(const v1::File& file) {
  return {{"object", "file"},
          {"id", file.id()},
          {"bytes", file.bytes()},
          {"created_at", Seconds(file.create_time())},
          {"filename", file.filename()},
          {"purpose", "fine-tune"},
          {"status", "processed"}};
}

json CheckpointObject(const std::string& job, const v1::Checkpoint& checkpoint) {
  const int64_t step = checkpoint.global_step();
  return {{"object", "fine_tuning.job.checkpoint"},
          {"id", absl::StrCat("ftckpt-", job, "-", step)},
          {"created_at", Seconds(checkpoint.create_time())},
          {"fine_tuned_model_checkpoint", absl::StrCat(job, ":ckpt-step-", step)},
          {"fine_tuning_job_id", job},
          {"step_number", step},
          {"metrics", {{"step", step}}}};
}

std::vector<json> EventObjects(const v1::Job& job, absl::string_view metrics) {
  Events events(job.id());
  events.Add(Seconds(job.create_time()), absl::StrCat("Created fine-tuning job: ", job.id()));
  if (job.has_start_time()) events.Add(Seconds(job.start_time()), "Fine-tuning job started");
  for (const absl::string_view text : absl::StrSplit(metrics, '\n', absl::SkipEmpty())) {
    const auto line = program::ParseJson(std::string_view(text.data(), text.size()),
                                         "a line of metrics", kLineLimits);
    if (line.ok() && line->is_object()) AddStep(*line, job.progress().max_steps(), events);
  }
  if (job.state() == v1::Job::STATE_SUCCEEDED)
    events.Add(Seconds(job.end_time()), "The job has successfully completed");
  if (job.state() == v1::Job::STATE_CANCELLED)
    events.Add(Seconds(job.end_time()), "The job was cancelled");
  if (job.state() == v1::Job::STATE_FAILED) {
    events.Add(Seconds(job.end_time()), absl::StrCat("The job failed: ", job.error().message()));
    events.Fail();
  }
  return std::move(events).NewestFirst();
}

absl::StatusOr<json> ListObject(const std::vector<json>& all, const std::string& after,
                                size_t limit) {
  size_t begin = 0;
  if (!after.empty()) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const json& object) { return object["id"] == after; });
    if (found == all.end()) return WrongParam("after", absl::StrCat("no \"", after, "\" here"));
    begin = static_cast<size_t>(found - all.begin()) + 1;
  }
  const size_t end = std::min(all.size(), begin + limit);
  json data = json::array();
  for (size_t i = begin; i < end; ++i) data.push_back(all[i]);
  const json none;
  return json{{"object", "list"},
              {"data", data},
              {"first_id", data.empty() ? none : data.front()["id"]},
              {"last_id", data.empty() ? none : data.back()["id"]},
              {"has_more", end < all.size()}};
}

}  // namespace snug::server
