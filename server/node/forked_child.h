// What a killed process leaves to a child that it had just forked: locks and sockets, until the
// child's exec closes them.
#ifndef SERVER_NODE_FORKED_CHILD_H_
#define SERVER_NODE_FORKED_CHILD_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace snug::server {

// Asks again for as long as such a child may take. False: it is not so, and somebody else holds it.
template <typename So>
bool SoonSo(const So& so) {
  const absl::Time end = absl::Now() + absl::Seconds(2);
  while (!so()) {
    if (absl::Now() > end) return false;
    absl::SleepFor(absl::Milliseconds(50));
  }
  return true;
}

}  // namespace snug::server

#endif  // SERVER_NODE_FORKED_CHILD_H_
