// What a job would be given if all devices were idle: for answers that change nothing.
#ifndef SERVER_SCHEDULER_OUTLOOK_H_
#define SERVER_SCHEDULER_OUTLOOK_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/data/prepare.h"
#include "server/scheduler/device_plans.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

// Of the prepared dataset, if it is there and is found in time; and what was found in it, into
// `summary`.
absl::StatusOr<RowLengths> KnownLengths(Preparer& preparer, const CheckedJob& job,
                                        const Preparer::Progress& progress,
                                        v1::DatasetSummary* summary);

// A job's plans on every device, and what it would be given if all of them were idle.
struct Outlook {
  SharedPlans plans;
  const Device* device = nullptr;  // Its device; where none holds it, the largest.
};

// By the policy itself, so that what is foretold is what happens.
absl::StatusOr<Outlook> Foresee(const std::vector<Device>& devices, const CheckedJob& job,
                                const RowLengths& lengths, PlansWanted wanted);

// `name` is one of theirs.
const Device& DeviceNamed(const std::vector<Device>& devices, const std::string& name);

// Index of the fastest plan within the device's capacity and the job's budget, or -1.
int ChosenOn(const Device& device, const v1::JobSpec& spec, const std::vector<v1::Plan>& plans,
             int64_t host_limit_bytes = INT64_MAX);

// Of a job that none of its plans fits: a sentence that names the fidelity at which one does, or
// nothing.
std::string FidelityThatFits(const Device& device, const CheckedJob& job,
                             const RowLengths& lengths);

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_OUTLOOK_H_
