// The one place that says which version this is.
#ifndef PROTO_SNUG_VERSION_H_
#define PROTO_SNUG_VERSION_H_

namespace snug {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace snug

#endif  // PROTO_SNUG_VERSION_H_
