// Which model a request asks, and whether it may be asked so: from the request and the job to all
// that a worker needs but the prompts' tokens and a device.
#ifndef SERVER_ANSWER_ASKED_MODEL_H_
#define SERVER_ANSWER_ASKED_MODEL_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/inspect/inspector.h"
#include "server/job/check_job.h"
#include "server/job/job_index.h"
#include "server/job/principal.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

inline constexpr int kMaxPrompts = 1000;         // More are another request.
inline constexpr int kMaxAnswerTokens = 32'768;  // Per prompt.
inline constexpr int kDefaultAnswerTokens = 256;
inline constexpr double kMaxTemperature = 10.0;

// INVALID_ARGUMENT with all violations at once.
absl::Status CheckSampleRequest(const v1::SampleRequest& request);

// With every default filled in: a model of few positions leaves half of them to a prompt.
v1::SampleSettings SettingsOf(const v1::SampleRequest& request, int64_t max_positions);

struct AskedModel {
  CheckedJob checked;           // Its program is frozen.
  Principal owner;              // Of the job: what may be opened for it.
  std::string adapter;          // A PEFT folder, or empty.
  std::string checkpoint;       // A checkpoint folder, or empty.
  std::string chat_template;    // That the job was trained with; empty: the model's.
  v1::SampleSettings settings;  // With every default filled in.
  int64_t max_prompt_tokens = 0;
};

// `request` has the job's whole id. FAILED_PRECONDITION: there is no such output yet, or the model
// classifies; NOT_FOUND: no such checkpoint. Takes milliseconds; a checkpoint is read whole by the
// worker, not here.
absl::StatusOr<AskedModel> FindModel(const v1::SampleRequest& request, const JobIndex& index,
                                     Inspector& inspector, const std::string& state_dir);

}  // namespace snug::server

#endif  // SERVER_ANSWER_ASKED_MODEL_H_
