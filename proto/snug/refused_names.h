// Settings of other fine-tuning tools that have no place in a job file. Names are in lower case.
#ifndef PROTO_SNUG_REFUSED_NAMES_H_
#define PROTO_SNUG_REFUSED_NAMES_H_

#include <string>

#include "absl/strings/string_view.h"

namespace snug {

// Whether the setting changes nothing of what is trained: it is about how another tool runs, or its
// value switches off what is not there (`deepspeed: null`, `load_in_4bit: false`). `value` is null
// where it is no scalar.
bool AsksForNothing(absl::string_view name, const std::string* value);

// What to do instead; null: the setting is not known.
const char* WhyRefused(absl::string_view name);

// The same of a value of a setting that we have ourselves (`method: dpo`).
const char* WhyValueRefused(absl::string_view name, const std::string* value);

}  // namespace snug

#endif  // PROTO_SNUG_REFUSED_NAMES_H_
