#include "server/scheduler/stored_plans.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/data/sha256.h"
#include "server/place/device_kinds.h"
#include "snug/v1/store.pb.h"

namespace snug::server {
namespace {

constexpr size_t kMaxPacked = 64;
constexpr size_t kForgetAbove = 1000;  // Plans that nobody may go by any more are looked for.

// Another build may plan otherwise.
std::string ThisBuild() {
  struct stat file {};
  if (stat("/proc/self/exe", &file) != 0) return "";
  return absl::StrCat(file.st_ino, ".", file.st_size, ".", file.st_mtim.tv_sec, ".",
                      file.st_mtim.tv_nsec);
}

v1::StoredPlans WithoutPlans(const ReadyJob& ready) {
  v1::StoredPlans stored;
  stored.set_model_dir(ready.checked.model_dir);
  stored.set_prompts(ready.folders.prompts);
  stored.set_adapter_dir(ready.checked.adapter_dir);
  stored.set_start_from(ready.checked.start_from);
  if (ready.checked.opened != nullptr) *stored.mutable_opened() = *ready.checked.opened;
  return stored;
}

CheckedJob CheckedIn(const v1::StoredPlans& stored) {
  CheckedJob checked{.model_dir = stored.model_dir(),
                     .adapter_dir = stored.adapter_dir(),
                     .start_from = stored.start_from()};
  if (stored.has_opened())
    checked.opened = std::make_shared<const v1::OpenedFiles>(stored.opened());
  return checked;
}

}  // namespace

StoredPlans::StoredPlans(const std::vector<Device>& devices) : made_by_(ThisBuild()) {
  for (const Device& device : devices) {
    const program::MachineRates rates = RatesOf(device);
    absl::StrAppend(&made_by_, " ", device.name, ",", device.id(), ",", device.threads, ",",
                    device.threads_per_job, ",", device.context_bytes, ",", device.products, ",",
                    device.host_bytes, ",", rates.head_rows);
    for (const program::Rates* of : {&rates.f32, &rates.bf16})
      for (const double rate : of->per_second) absl::StrAppend(&made_by_, ",", rate);
  }
}

std::shared_ptr<const PlansRecord> StoredPlans::Pack(const ReadyJob& ready) {
  v1::StoredPlans stored = WithoutPlans(ready);
  Packing what = {ready.plans, stored.SerializeAsString()};
  if (const auto known = packed_.find(what); known != packed_.end()) return known->second;
  for (const auto& [device, plans] : *ready.plans) {
    v1::StoredPlans::OfDevice& of_device = *stored.add_devices();
    of_device.set_device(device);
    for (const v1::Plan& plan : plans) *of_device.add_plans() = plan;
  }
  auto record = std::make_shared<PlansRecord>();
  record->made_by = made_by_;
  record->plans = stored.SerializeAsString();
  record->sha256 = Sha256Hex(record->plans);
  if (packed_.size() >= kMaxPacked) packed_.clear();
  packed_[std::move(what)] = record;
  return record;
}

const StoredPlans::Unpacked* StoredPlans::UnpackedOf(const PlansRecord& packed) {
  const auto known = unpacked_.find(packed.sha256);
  if (known != unpacked_.end()) return &known->second;
  v1::StoredPlans stored;
  if (!stored.ParseFromString(packed.plans)) return nullptr;
  auto plans = std::make_shared<DevicePlans>();
  for (const v1::StoredPlans::OfDevice& of_device : stored.devices())
    (*plans)[of_device.device()].assign(of_device.plans().begin(), of_device.plans().end());
  if (unpacked_.size() >= kMaxPacked) unpacked_.clear();
  return &(unpacked_[packed.sha256] = {.checked = CheckedIn(stored),
                                       .prompts = stored.prompts(),
                                       .plans = Share(std::move(plans), packed)});
}

SharedReady StoredPlans::Unpack(const PlansRecord& packed, const JobRecord& record) {
  const Unpacked* stored = packed.made_by == made_by_ ? UnpackedOf(packed) : nullptr;
  if (stored == nullptr) return nullptr;
  ReadyJob ready;
  ready.checked = stored->checked;
  ready.checked.spec = record.job.spec();
  ready.folders = {.train = record.train_data,
                   .eval = record.eval_data,
                   .prompts = stored->prompts,
                   .ready = true};
  ready.summary = record.job.dataset();
  ready.plans = stored->plans;
  return std::make_shared<const ReadyJob>(std::move(ready));
}

SharedPlans StoredPlans::Share(SharedPlans plans, const PlansRecord& packed) {
  if (shared_.size() > kForgetAbove)
    std::erase_if(shared_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const DevicePlans>& known = shared_[packed.sha256];
  if (auto same = known.lock()) return same;
  known = plans;
  return plans;
}

}  // namespace snug::server
