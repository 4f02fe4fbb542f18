// Early return on a failed absl::Status. (Debian's Abseil has no status macros.)
#ifndef PROTO_SNUG_STATUS_MACROS_H_
#define PROTO_SNUG_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(expr)                                                        \
  do {                                                                               \
    if (absl::Status snug_status_ = (expr); !snug_status_.ok()) return snug_status_; \
  } while (false)

#define SNUG_CONCAT_INNER_(a, b) a##b
#define SNUG_CONCAT_(a, b) SNUG_CONCAT_INNER_(a, b)

#define ASSIGN_OR_RETURN(lhs, expr) \
  SNUG_ASSIGN_OR_RETURN_(SNUG_CONCAT_(snug_statusor_, __LINE__), lhs, expr)

#define SNUG_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                           \
  if (!tmp.ok()) return tmp.status();          \
  lhs = *std::move(tmp)

#endif  // PROTO_SNUG_STATUS_MACROS_H_
