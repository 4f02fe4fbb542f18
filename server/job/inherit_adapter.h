// adapter_config.json of the adapter that a job starts from: what the job does not say itself is
// taken from there, so that the first step computes what the adapter computed.
//
// Reads the configuration alone: that the tensors fit the model is checked with the program.
#ifndef SERVER_JOB_INHERIT_ADAPTER_H_
#define SERVER_JOB_INHERIT_ADAPTER_H_

#include <string>

#include "absl/status/status.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

// Fills all other fields of `lora` from its init_adapter. An error names the field of the adapter's
// file that contradicts the job, or that asks for what Snug does not compute: then another scale,
// or other weights, would be trained without a word. Dropout alone may be another.
absl::Status InheritAdapter(v1::LoraSpec& lora);
// The same from what the job `from` names was told of its adapter; `where` names it in errors.
absl::Status InheritLora(const v1::LoraSpec& from, const std::string& where, v1::LoraSpec& lora);

}  // namespace snug::server

#endif  // SERVER_JOB_INHERIT_ADAPTER_H_
