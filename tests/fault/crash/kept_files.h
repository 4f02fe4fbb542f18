// Uploads, their deletions, and copies of the store, one after another; and what must hold of them
// after each start.
#ifndef TESTS_FAULT_CRASH_KEPT_FILES_H_
#define TESTS_FAULT_CRASH_KEPT_FILES_H_

#include <map>
#include <set>
#include <string>

#include "grpcpp/grpcpp.h"
#include "snug/v1/service.grpc.pb.h"

namespace snug::crash {

// For one thread at a time.
class KeptFiles {
 public:
  explicit KeptFiles(std::string folder) : folder_(std::move(folder)) {}

  // Sends a small file; it is there once that is acknowledged.
  grpc::Status Upload(v1::FineTuning::Stub& stub);
  // Takes one away again, where there is one.
  grpc::Status Delete(v1::FineTuning::Stub& stub);
  // A copy of the store, which must be whole: else DATA_LOSS.
  grpc::Status BackUp(v1::FineTuning::Stub& stub) const;
  size_t size() const { return kept_.size(); }

  // What is wrong after a start; empty: files that were acknowledged are there, deleted ones are
  // not, and no copy of the store is left behind in `state`.
  std::string Compare(v1::FineTuning::Stub& stub, const std::string& state);

 private:
  const std::string folder_;
  int made_ = 0;
  std::map<std::string, std::string> kept_;  // Ids by SHA-256.
  std::set<std::string> unsure_;             // Those that may or may not be there.
};

}  // namespace snug::crash

#endif  // TESTS_FAULT_CRASH_KEPT_FILES_H_
