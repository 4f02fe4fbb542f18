// Logging with spdlog, which does not know Abseil's string_view of this distribution.
#ifndef SERVER_JOB_LOG_H_
#define SERVER_JOB_LOG_H_

#include "absl/strings/string_view.h"
#include "spdlog/spdlog.h"

template <>
struct fmt::formatter<absl::string_view> : fmt::formatter<fmt::string_view> {
  template <typename Context>
  auto format(absl::string_view text, Context& context) const {
    return fmt::formatter<fmt::string_view>::format({text.data(), text.size()}, context);
  }
};

#endif  // SERVER_JOB_LOG_H_
