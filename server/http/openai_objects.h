// OpenAI's objects and ours: requests to create jobs, and what is answered about jobs, files,
// events and checkpoints. Pure. What of that API has no place here is refused by its name, never
// passed over.
#ifndef SERVER_HTTP_OPENAI_OBJECTS_H_
#define SERVER_HTTP_OPENAI_OBJECTS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "snug/v1/files.pb.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

// A parameter of the request, by its name there: an INVALID_ARGUMENT that ParamOf knows.
absl::Status WrongParam(absl::string_view param, absl::string_view message);
// Of any error of ours: the parameter that it is about; empty: none is known.
std::string ParamOf(const absl::Status& status);

// {"error": {message, type, param, code}}
std::string ErrorBody(const absl::Status& status);

// The body of POST /v1/fine_tuning/jobs: LoRA with the defaults of job files, but for what it says.
absl::StatusOr<v1::JobSpec> SpecOf(absl::string_view body);

nlohmann::json JobObject(const v1::Job& job, const std::string& id);
// By its id, which is that of one job of those that are shown.
nlohmann::json JobObject(const v1::Job& job);
nlohmann::json FileObject(const v1::File& file);
nlohmann::json CheckpointObject(const std::string& job, const v1::Checkpoint& checkpoint);
// Newest first, made of the job and of its metrics.jsonl.
std::vector<nlohmann::json> EventObjects(const v1::Job& job, absl::string_view metrics);

// {"object": "list", ...}: of `all` those behind the one whose id is `after`, at most `limit`.
// WrongParam: there is none of that id.
absl::StatusOr<nlohmann::json> ListObject(const std::vector<nlohmann::json>& all,
                                          const std::string& after, size_t limit);

}  // namespace snug::server

#endif  // SERVER_HTTP_OPENAI_OBJECTS_H_
