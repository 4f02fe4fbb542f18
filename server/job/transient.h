// Which errors pass by themselves: the one table. What fails with one of them is held with its
// reason and tried again; it costs a job neither its life nor a retry.
#ifndef SERVER_JOB_TRANSIENT_H_
#define SERVER_JOB_TRANSIENT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace snug::server {

// By its code, by its reason, or because every violation that it lists may pass.
bool IsTransient(const absl::Status& status);

// Whether what is wrong with a file may pass: it cannot be opened now, or it is not there. Of a job
// that was accepted, for then it was there: its folder may be away for a while.
bool MayComeBack(const absl::Status& status);

// A worker's own word for such an error.
bool IsTransientReason(absl::string_view reason);

// Between tries: 5 s at first, twice as long each time, at most a minute.
absl::Duration HoldFor(int tries);

}  // namespace snug::server

#endif  // SERVER_JOB_TRANSIENT_H_
