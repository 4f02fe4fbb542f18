// The prompts of a job, tokenised: a file in the folder of its prepared training data, named after
// what it depends on beside the tokenizer, which the folder is named after. snug_prompts.py writes
// it.
#ifndef SERVER_DATA_PROMPTS_H_
#define SERVER_DATA_PROMPTS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "snug/v1/job.pb.h"
#include "snug/v1/sample.pb.h"

namespace snug::server {

// Where it lies or will lie; empty: the job has no prompts. `spec` has its defaults filled in.
std::string PromptsFile(const v1::JobSpec& spec, const std::string& train_folder);

// Tokens of the longest prompt of a file; 0 where `path` is empty.
absl::StatusOr<int64_t> LongestPrompt(const std::string& path);

// A JSON array of strings, for snug_prompts.py.
absl::Status WriteTexts(const v1::JobSpec& spec, const std::string& path);

using SamplePrompts = google::protobuf::RepeatedPtrField<v1::SamplePrompt>;

// The same of texts and conversations.
absl::Status WritePrompts(const SamplePrompts& prompts, const std::string& path);

}  // namespace snug::server

#endif  // SERVER_DATA_PROMPTS_H_
