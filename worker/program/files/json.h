// JSON from files that users bring, read within limits.
//
// The parser is nlohmann-json, called only in its forms that do not throw: its event interface and
// parse() with exceptions off. What it gives is complete or an error: no duplicate key, no number
// outside double or uint64, valid UTF-8, nothing deeper or longer than the limits. It does not know
// what the values mean.
#ifndef WORKER_PROGRAM_FILES_JSON_H_
#define WORKER_PROGRAM_FILES_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace snug::program {

// The defaults are those of a config.json.
struct JsonLimits {
  int64_t bytes = int64_t{1} << 20;
  int64_t values = 100'000;  // A value in memory takes 50 to 150 bytes: 15 MB at most.
  int depth = 32;            // Of nested objects and arrays.
};

// That the text is within them, for who parses it otherwise. `where` names it in errors.
absl::Status CheckJson(std::string_view text, const std::string& where, const JsonLimits& limits);

absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, const std::string& where,
                                         const JsonLimits& limits);

// The same of a file's content. Not found, not a regular file, too long: errors that name the path.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path, const JsonLimits& limits);

// What the parser says about broken text, without its codes and fit for a message.
std::string DescribeJsonError(const std::exception& error);

// A name or a value from a file, fit for a message: quoted, control characters escaped, cut at 100
// bytes.
std::string Quote(const std::string& text);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_FILES_JSON_H_
