// What to say to someone who wrote a key that does not exist: the one that was probably meant.
#ifndef PROTO_SNUG_KEY_HINT_H_
#define PROTO_SNUG_KEY_HINT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace snug {

// The candidate that is fewest edits (insert, delete, replace, swap of neighbours) away, or "" when
// none is near enough to be meant: at most a third of the longer word, and at least 2.
std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates);

// For an unknown `key` of the message `at` inside a file whose message is `root`: `did you mean
// training.max_seq_length?` by the names that other tools give, by fields of that name elsewhere in
// the file, by nearness; else the keys that exist.
std::string KeyHint(absl::string_view key, const google::protobuf::Descriptor& at,
                    const google::protobuf::Descriptor& root);

}  // namespace snug

#endif  // PROTO_SNUG_KEY_HINT_H_
