// Weights that jobs of a device hold in common, and how they are counted: once. Pure.
#ifndef SERVER_PLACE_SHARED_WEIGHTS_H_
#define SERVER_PLACE_SHARED_WEIGHTS_H_

#include <compare>
#include <cstdint>
#include <map>
#include <string>

namespace snug::server {

// What a job shares. With an equal digest the bytes are equal, and the same ones.
struct SharedWeights {
  std::string digest;  // Empty: nothing.
  int64_t bytes = 0;
  auto operator<=>(const SharedWeights&) const = default;
};

// A device's promises, as they add up.
class SharedCount {
 public:
  // Bytes that a promise of `bytes`, among them the shared ones, takes beside those that are here.
  int64_t Beside(int64_t bytes, const SharedWeights& shared) const {
    return uses_.contains(shared.digest) ? bytes - shared.bytes : bytes;
  }
  // Adds such a promise and gives that.
  int64_t Add(int64_t bytes, const SharedWeights& shared) {
    const int64_t more = Beside(bytes, shared);
    if (!shared.digest.empty()) Count(shared).jobs += 1;
    return more;
  }
  // Takes one away that had been added, and gives what comes free by it.
  int64_t Remove(int64_t bytes, const SharedWeights& shared) {
    const auto use = uses_.find(shared.digest);
    if (use == uses_.end()) return bytes;
    if (--use->second.jobs > 0) return bytes - shared.bytes;
    uses_.erase(use);
    return bytes;
  }

  struct Use {
    int64_t bytes = 0;
    int jobs = 0;
  };
  const std::map<std::string, Use>& uses() const { return uses_; }  // By digest.

 private:
  Use& Count(const SharedWeights& shared) {
    Use& use = uses_[shared.digest];
    use.bytes = shared.bytes;
    return use;
  }

  std::map<std::string, Use> uses_;
};

}  // namespace snug::server

#endif  // SERVER_PLACE_SHARED_WEIGHTS_H_
