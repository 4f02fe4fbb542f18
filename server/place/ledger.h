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

// What one attempt has been promised.
struct Promise {
  int64_t bytes = 0;          // Of its device.
  SharedWeights shared = {};  // Among these.
  int64_t host_bytes = 0;     // Of the host's memory, beside them.
};

class Ledger {
 public:
  // `host_bytes`: of the host's memory, for all devices together.
  explicit Ledger(std::vector<Device> devices, int64_t host_bytes = INT64_MAX)
      : devices_(std::move(devices)), host_bytes_(host_bytes) {}

  // Devices are told by their name or by their id.
  // RESOURCE_EXHAUSTED with the bytes there are, NOT_FOUND for an unknown device.
  absl::Status Reserve(const std::string& device, const std::string& job, const Promise& promise);
  // A promise of the daemon's earlier life: it stands, even where the capacity has shrunk since or
  // the device is gone.
  void Restore(const std::string& device, const std::string& job, const Promise& promise);
  // Other amounts for a job that has a reservation; what it shares stays. RESOURCE_EXHAUSTED as
  // above; fewer bytes are always taken back.
  absl::Status Resize(const std::string& job, int64_t bytes, int64_t host_bytes);
  void Release(const std::string& job);

  int64_t ReservedOn(const std::string& device) const;
  int JobsOn(const std::string& device) const;  // To which something is promised there.
  Promise PromisedTo(const std::string& job) const;
  int64_t HostReserved() const;
  int64_t host_bytes() const { return host_bytes_; }
  SharedCount SharedOn(const std::string& device) const;
  // Bytes promised on what is no device any more, by its id.
  std::map<std::string, int64_t> Elsewhere() const;
  std::vector<DeviceState> Snapshot() const;
  const std::vector<Device>& devices() const { return devices_; }
  const Device* Find(const std::string& device) const;  // Null: there is none.

 private:
  const std::string& IdOf(const std::string& device) const;

  absl::Status CheckHost(const std::string& job, int64_t more) const;

  struct Placed : Promise {
    std::string device;  // Its id.
  };
  std::vector<Device> devices_;
  int64_t host_bytes_;
  std::map<std::string, Placed> promises_;  // By job: one attempt at a time.
};

}  // namespace snug::server

#endif  // SERVER_PLACE_LEDGER_H_
