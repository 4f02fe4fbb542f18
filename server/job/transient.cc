#include "server/job/transient.h"

#include <algorithm>
#include <cmath>

#include "server/job/errors.h"

namespace snug::server {
namespace {

constexpr absl::Duration kFirstHold = absl::Seconds(5);
constexpr absl::Duration kLongestHold = absl::Minutes(1);
constexpr int kDoublings = 4;

// Errors of system calls come under these codes (absl::ErrnoToStatus).
constexpr absl::StatusCode kTransientCodes[] = {
    absl::StatusCode::kResourceExhausted,  // ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM
    absl::StatusCode::kUnavailable,        // EAGAIN, EINTR, ENOLCK, EHOSTDOWN; what says so itself
    absl::StatusCode::kAborted,            // ESTALE: of a network's disk
};

// A daemon's or a program's own words. What a user can only mend by another job is none of them.
constexpr absl::string_view kTransientReasons[] = {
    "DISK_FULL",   // The worker's.
    "STORE_FULL",  // The store's.
};

}  // namespace

bool IsTransientReason(absl::string_view reason) {
  return std::find(std::begin(kTransientReasons), std::end(kTransientReasons), reason) !=
         std::end(kTransientReasons);
}

bool IsTransient(const absl::Status& status) {
  return std::find(std::begin(kTransientCodes), std::end(kTransientCodes), status.code()) !=
             std::end(kTransientCodes) ||
         (!status.ok() && (IsTransientReason(ReasonOf(status)) || MayPass(status)));
}

// Without a reason of ours: a job that does not exist is no file.
bool MayComeBack(const absl::Status& status) {
  return IsTransient(status) || (absl::IsNotFound(status) && ReasonOf(status) == "NOT_FOUND");
}

absl::Duration HoldFor(int tries) {
  return std::min(kFirstHold * std::exp2(std::min(tries, kDoublings)), kLongestHold);
}

}  // namespace snug::server
