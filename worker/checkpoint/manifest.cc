// The text, indented by two:
//   { "schema": 1, "job_id": ..., "epoch": e, "step": s, "max_steps": ..., "seed": ...,
//     "data": {"epoch", "micro_batch", "dataset_sha256"}, "num_tokens", "last_loss", "plan",
//     "best": {"step", "metric", "waited", "checkpoint"}   where an evaluation was made,
//     "products" (absent in files of before there was a choice),
//     "files": {name: {"bytes", "sha256"}, ...},
//     "sha256": of all bytes before this line, the comma and line break before it left out }
// followed by a line break. So every byte is either hashed or compared, and a flipped bit anywhere
// shows, in a number as in a file.
#include "worker/checkpoint/manifest.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/sha256.h"
#include "worker/program/files/json.h"
#include "worker/program/files/json_text.h"

namespace snug::checkpoint {
namespace {

using nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr std::string_view kBodyEnd = "\n}";

// What follows the hashed part.
std::string Seal(std::string_view body) {
  return absl::StrCat(",\n  \"sha256\": \"", Sha256Hex(body), "\"\n}\n");
}

ordered_json ToJson(const Manifest& manifest) {
  const RunState& state = manifest.state;
  ordered_json files = ordered_json::object();
  for (const auto& [name, digest] : manifest.files) {
    files[name] = {{"bytes", digest.bytes}, {"sha256", digest.sha256}};
  }
  ordered_json json = {{"schema", kSchema},
                       {"job_id", state.job_id},
                       {"epoch", state.epoch},
                       {"step", state.global_step},
                       {"max_steps", state.max_steps},
                       {"seed", state.seed},
                       {"data",
                        {{"epoch", state.data_epoch},
                         {"micro_batch", state.data_micro_batch},
                         {"dataset_sha256", state.dataset_sha256}}},
                       {"num_tokens", state.num_tokens},
                       {"last_loss", state.last_loss},
                       {"plan", state.plan_name},
                       {"products", state.products}};
  if (state.best.step >= 0) {
    json["best"] = {{"step", state.best.step},
                    {"metric", state.best.metric},
                    {"waited", state.best.waited},
                    {"checkpoint", state.best.checkpoint}};
  }
  json["files"] = files;
  return json;
}

// Takes members out of an object that this program wrote; the first that is not as written is
// remembered.
class Members {
 public:
  Members(const nlohmann::json& object, std::string& problem)
      : object_(object), problem_(problem) {}

  const nlohmann::json& At(const char* name, bool (nlohmann::json::*is)() const noexcept) const {
    static const nlohmann::json kNone;
    const auto found = object_.find(name);
    if (found != object_.end() && ((*found).*is)()) return *found;
    if (problem_.empty()) problem_ = name;
    return kNone;
  }
  const nlohmann::json& Object(const char* name) const {
    return At(name, &nlohmann::json::is_object);
  }
  int64_t Count(const char* name) const {
    const nlohmann::json& value = At(name, &nlohmann::json::is_number_integer);
    return value.is_null() ? 0 : value.get<int64_t>();
  }
  uint64_t Unsigned(const char* name) const {
    const nlohmann::json& value = At(name, &nlohmann::json::is_number_unsigned);
    return value.is_null() ? 0 : value.get<uint64_t>();
  }
  double Real(const char* name) const {
    const nlohmann::json& value = At(name, &nlohmann::json::is_number);
    return value.is_null() ? 0.0 : value.get<double>();
  }
  std::string Text(const char* name) const {
    const nlohmann::json& value = At(name, &nlohmann::json::is_string);
    return value.is_null() ? "" : value.get<std::string>();
  }

  std::string TextOrNone(const char* name) const {
    return object_.contains(name) ? Text(name) : "";
  }

 private:
  const nlohmann::json& object_;
  std::string& problem_;
};

BestState BestFrom(const Members& best) {
  return {.step = best.Count("step"),
          .metric = best.Real("metric"),
          .waited = best.Count("waited"),
          .checkpoint = best.Text("checkpoint")};
}

RunState StateFrom(const Members& members, std::string& problem) {
  const Members data(members.Object("data"), problem);
  return {.job_id = members.Text("job_id"),
          .epoch = static_cast<int32_t>(members.Count("epoch")),
          .global_step = members.Count("step"),
          .max_steps = members.Count("max_steps"),
          .seed = members.Unsigned("seed"),
          .data_epoch = data.Count("epoch"),
          .data_micro_batch = data.Count("micro_batch"),
          .num_tokens = members.Count("num_tokens"),
          .last_loss = members.Real("last_loss"),
          .plan_name = members.Text("plan"),
          .dataset_sha256 = data.Text("dataset_sha256"),
          .best = {},
          .products = members.TextOrNone("products")};
}

absl::Status NotWhole(const std::string& where, const std::string& why) {
  return absl::DataLossError(absl::StrCat(where, " is damaged: ", why));
}

}  // namespace

absl::StatusOr<std::string> ManifestText(const Manifest& manifest) {
  ASSIGN_OR_RETURN(std::string body, program::JsonText(ToJson(manifest), program::kIndent));
  body.resize(body.size() - kBodyEnd.size());
  return body + Seal(body);
}

absl::StatusOr<Manifest> ParseManifest(std::string_view text, const std::string& where) {
  const size_t seal_bytes = Seal("").size();
  if (text.size() < seal_bytes) return NotWhole(where, "cut short");
  const std::string_view body = text.substr(0, text.size() - seal_bytes);
  if (!absl::EndsWith(absl::string_view(text.data(), text.size()), Seal(body))) {
    return NotWhole(where, "it does not have the hash that its last line says");
  }
  ASSIGN_OR_RETURN(const nlohmann::json json, program::ParseJson(text, where, {}));
  std::string problem;
  const Members members(json, problem);
  if (members.Count("schema") != kSchema) {
    return absl::FailedPreconditionError(absl::StrCat(where, ": schema ", members.Count("schema"),
                                                      "; this program reads ", kSchema));
  }
  Manifest manifest = {.state = StateFrom(members, problem), .files = {}};
  if (json.contains("best")) manifest.state.best = BestFrom({members.Object("best"), problem});
  for (const auto& [name, entry] : members.Object("files").items()) {
    const Members file(entry, problem);
    manifest.files[name] = {.bytes = file.Count("bytes"), .sha256 = file.Text("sha256")};
  }
  if (!problem.empty()) return NotWhole(where, problem + " is missing or of another kind");
  return manifest;
}

}  // namespace snug::checkpoint
