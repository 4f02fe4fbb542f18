// JSON as text, without surprises: what cannot be written as it is, is an error. nlohmann-json
// would throw on text that is not UTF-8 and write null for a number that is not finite.
#ifndef WORKER_PROGRAM_FILES_JSON_TEXT_H_
#define WORKER_PROGRAM_FILES_JSON_TEXT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace snug::program {

inline constexpr int kOneLine = -1;
inline constexpr int kIndent = 2;  // As transformers and peft indent.

// Members in the order in which they were put in; no line break at the end.
absl::StatusOr<std::string> JsonText(const nlohmann::ordered_json& value, int indent);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_FILES_JSON_TEXT_H_
