// What a restart needs to place a job without reading its files and planning it again. It holds for
// one build of the daemon on one set of devices.
#ifndef SERVER_SCHEDULER_STORED_PLANS_H_
#define SERVER_SCHEDULER_STORED_PLANS_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/job/records.h"
#include "server/place/devices.h"
#include "server/scheduler/entry.h"

namespace snug::server {

class StoredPlans {
 public:
  explicit StoredPlans(const std::vector<Device>& devices);

  // Packed once for all jobs that hold the same plans.
  std::shared_ptr<const PlansRecord> Pack(const ReadyJob& ready);
  // Null when another build or other devices made it.
  SharedReady Unpack(const PlansRecord& packed, const JobRecord& record);

  // What Unpack keeps for the next job of the same plans.
  void ForgetUnpacked() { unpacked_.clear(); }

  // The same plans once in memory, however many jobs go by them.
  SharedPlans Share(SharedPlans plans, const PlansRecord& packed);

 private:
  // What of a ready job is packed: its plans, and the rest as bytes.
  using Packing = std::pair<SharedPlans, std::string>;

  std::string made_by_;
  // A packed record, parsed: `checked` but for the spec, which is in the job's record.
  struct Unpacked {
    CheckedJob checked;
    std::string prompts;
    SharedPlans plans;
  };
  // Null: it does not parse.
  const Unpacked* UnpackedOf(const PlansRecord& packed);

  std::map<Packing, std::shared_ptr<const PlansRecord>> packed_;
  std::map<std::string, Unpacked> unpacked_;                        // By SHA-256 of the packed.
  std::map<std::string, std::weak_ptr<const DevicePlans>> shared_;  // By SHA-256 of the packed.
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_STORED_PLANS_H_
