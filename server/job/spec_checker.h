// Collects what is wrong with a JobSpec; every check goes on after a violation.
#ifndef SERVER_JOB_SPEC_CHECKER_H_
#define SERVER_JOB_SPEC_CHECKER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/job/check_spec.h"
#include "server/job/errors.h"

namespace snug::server {

// Fields are named as in the job file: "training.max_steps".
class Checker {
 public:
  void Add(std::string field, std::string message, std::string reason = "BAD_FIELD") {
    found_.push_back({absl::StrCat("spec.", field), std::move(message), std::move(reason)});
  }
  void Integer(const char* field, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high)
      Add(field, absl::StrCat(value, " is outside ", low, " to ", high));
  }
  // Closed at `low`; closed at `high` unless `open`.
  void Real(const char* field, double value, double low, double high, bool open = false) {
    const bool inside = value >= low && (open ? value < high : value <= high);
    if (inside) return;  // NaN is not.
    Add(field, absl::StrCat(value, " is outside [", low, ", ", high, open ? ")" : "]"));
  }
  void Positive(const char* field, double value, double high) {
    if (value > 0.0 && value <= high) return;
    Add(field, absl::StrCat(value, " is outside (0, ", high, "]"));
  }
  void Path(const char* field, const std::string& path) {
    if (static_cast<int64_t>(path.size()) > kMaxPathBytes)
      Add(field, absl::StrCat("a path of ", path.size(), " bytes; at most ", kMaxPathBytes));
    else if (absl::StrContains(path, '\0'))
      Add(field, "a path cannot hold a zero byte");
    else if (!absl::StartsWith(path, "/"))
      Add(field, absl::StrCat("\"", path, "\" must be an absolute path"));
  }
  std::vector<Violation> Take() { return std::move(found_); }

 private:
  std::vector<Violation> found_;
};

}  // namespace snug::server

#endif  // SERVER_JOB_SPEC_CHECKER_H_
