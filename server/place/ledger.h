// Bytes promised to attempts on devices: the only truth for admission. Their sum on a device, where
// what several share counts once, never exceeds its capacity.
#ifndef SERVER_PLACE_LEDGER_H_
#define SERVER_PLACE_LEDGER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/place/devices.h"
#include "server/place/policy.h"

namespace snug::server {

class Ledger {
 public:
  explicit Ledger(std::vector<Device> devices) : devices_(std::move(devices)) {}

  // Devices are told by their name or by their id.
  // `shared` is among the bytes. RESOURCE_EXHAUSTED with the bytes there are, NOT_FOUND for an
  // unknown device.
  absl::Status Reserve(const std::string& device, const std::string& job, int64_t bytes,
                       const SharedWeights& shared = {});
  // A promise of the daemon's earlier life: it stands, even where the capacity has shrunk since or
  // the device is gone.
  void Restore(const std::string& device, const std::string& job, int64_t bytes,
               const SharedWeights& shared = {});
  // Another amount for a job that has a reservation. RESOURCE_EXHAUSTED as above; fewer bytes are
  // always taken back.
  absl::Status Resize(const std::string& job, int64_t bytes);
  void Release(const std::string& job);

  int64_t ReservedOn(const std::string& device) const;
  int64_t ReservedFor(const std::string& job) const;  // With what it shares.
  SharedWeights SharedBy(const std::string& job) const;
  SharedCount SharedOn(const std::string& device) const;
  // Bytes promised on what is no device any more, by its id.
  std::map<std::string, int64_t> Elsewhere() const;
  std::vector<DeviceState> Snapshot() const;
  const std::vector<Device>& devices() const { return devices_; }
  const Device* Find(const std::string& device) const;  // Null: there is none.

 private:
  const std::string& IdOf(const std::string& device) const;

  struct Promise {
    std::string device;  // Its id.
    int64_t bytes = 0;
    SharedWeights shared;
  };
  std::vector<Device> devices_;
  std::map<std::string, Promise> promises_;  // By job: one attempt at a time.
};

}  // namespace snug::server

#endif  // SERVER_PLACE_LEDGER_H_
