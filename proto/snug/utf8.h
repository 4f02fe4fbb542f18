// Text from elsewhere, as messages and files of ours can hold it.
#ifndef PROTO_SNUG_UTF8_H_
#define PROTO_SNUG_UTF8_H_

#include <string>

#include "absl/strings/string_view.h"

namespace snug {

// The same text, where each byte that is no UTF-8 has become U+FFFD. A message of protobuf that has
// another byte in a string cannot be read again.
std::string ValidUtf8(absl::string_view text);

}  // namespace snug

#endif  // PROTO_SNUG_UTF8_H_
