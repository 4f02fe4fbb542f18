// Labels of a job: the user's own words to find it by.
#ifndef SERVER_JOB_CHECK_LABELS_H_
#define SERVER_JOB_CHECK_LABELS_H_

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/map.h"

namespace snug::server {

inline constexpr size_t kMaxLabels = 64;
inline constexpr size_t kMaxLabelBytes = 63;

// INVALID_ARGUMENT that names `field`.key. Keys are [A-Za-z0-9]([A-Za-z0-9._/-]*), values without
// control characters.
absl::Status CheckLabels(const std::string& field,
                         const google::protobuf::Map<std::string, std::string>& labels);

}  // namespace snug::server

#endif  // SERVER_JOB_CHECK_LABELS_H_
