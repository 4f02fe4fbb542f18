#include "server/data/prepare_run.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/bytes.h"
#include "server/node/clock.h"

namespace snug::server {
namespace {

constexpr absl::Duration kSayReading = absl::Seconds(1);

}  // namespace

HashWatch WatchOf(const PrepareProgress& progress) {
  return [&progress, next = absl::Now() + kSayReading](int64_t done, int64_t of) mutable {
    if (progress.cancelled != nullptr && progress.cancelled->load())
      return absl::CancelledError("cancelled");
    const absl::Time now = absl::Now();
    if (now > progress.read_until || SinceBoot() >= progress.until)
      return absl::DeadlineExceededError(
          absl::StrCat("reading a dataset of ", FormatBytes(of), " takes longer"));
    if (now < next || !progress.say) return absl::OkStatus();
    next = now + kSayReading;
    progress.say(
        absl::StrCat("its dataset is being read: ", FormatBytes(done), " of ", FormatBytes(of)));
    return absl::OkStatus();
  };
}

}  // namespace snug::server
