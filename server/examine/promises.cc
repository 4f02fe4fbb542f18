#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/examine/examining.h"
#include "server/place/ledger.h"
#include "snug/v1/plan.pb.h"

namespace snug::server {
namespace {

constexpr const char* kCheck = "promises_within_capacity";
constexpr const char* kPromises =
    "SELECT r.device, r.job, r.bytes, a.plan FROM reservations r "
    "LEFT JOIN attempts a ON a.job=r.job AND a.epoch=r.epoch";

}  // namespace

// Added up as a start does it: what several attempts share counts once. A capacity that was lowered
// under attempts that run is found as well: their bytes are more than there are.
absl::Status CheckPromises(Examining& examining) {
  examining.Begin(kCheck);
  const Premises& premises = examining.premises();
  Ledger ledger(premises.devices, premises.host_bytes);
  RETURN_IF_ERROR(examining.Look([&](Database& database) {
    return database.Query(kPromises, [&](const Row& row) {
      v1::Plan plan;
      if (!plan.ParseFromString(row.Bytes(3)))
        return absl::DataLossError("a row of the store's table attempts does not parse");
      ledger.Restore(row.Text(0), row.Text(1),
                     {.bytes = row.Int(2),
                      .shared = {.digest = plan.shared().digest(), .bytes = plan.shared().bytes()},
                      .host_bytes = plan.host_bytes()});
      return absl::OkStatus();
    });
  }));
  for (const Device& device : premises.devices) {
    const int64_t promised = ledger.ReservedOn(device.id());
    if (promised > device.capacity_bytes)
      examining.Add(
          kCheck, device.name,
          absl::StrCat(promised, " bytes are promised, and there are ", device.capacity_bytes));
  }
  if (ledger.HostReserved() > premises.host_bytes)
    examining.Add(kCheck, "host",
                  absl::StrCat(ledger.HostReserved(), " bytes of its memory are promised, and ",
                               "plans may use ", premises.host_bytes));
  return absl::OkStatus();
}

}  // namespace snug::server
