// Ids from the kernel's random numbers: nonces, instance ids, the tail of a job's id.
#ifndef SERVER_JOB_RANDOM_ID_H_
#define SERVER_JOB_RANDOM_ID_H_

#include <string>
#include "absl/strings/string_view.h"

namespace snug::server {

// `digits` hexadecimal digits.
std::string RandomHex(int digits);

// Version 4, lower case: 8-4-4-4-12.
std::string RandomUuid();

// Whether it is [a-z]([a-z0-9-]{0,61}[a-z0-9])?
bool IsJobId(absl::string_view id);

// 8-4-4-4-12 hexadecimal digits.
bool IsUuid(absl::string_view id);

// "Answers LoRA!" -> "answers-lora-3f9a1c": what the user called it, then six random digits.
std::string NewJobId(absl::string_view display_name);

}  // namespace snug::server

#endif  // SERVER_JOB_RANDOM_ID_H_
