// What the status page shows of the daemon at one time, and what of it has changed since.
#ifndef SERVER_HTTP_SNAPSHOT_H_
#define SERVER_HTTP_SNAPSHOT_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/gateway.h"

namespace snug::server {

// As the API's other JSON: names of the fields as in the schema, fields without a value left out.
std::string JsonOf(const google::protobuf::Message& message);

// The newest jobs, `most` at most, as ListJobs gives them.
absl::StatusOr<std::vector<v1::Job>> NewestJobs(const Gateway& gateway, const std::string& secret,
                                                int most);

// Of one browser: what it has been told.
class EventFeed {
 public:
  EventFeed(const Gateway& gateway, std::string secret)
      : gateway_(gateway), secret_(std::move(secret)) {}

  // Server-sent events of what has changed since the last call; of everything, the first time. May
  // be empty.
  absl::StatusOr<std::string> Next();

 private:
  const Gateway& gateway_;
  const std::string secret_;
  std::string server_;
  std::map<std::string, std::string> jobs_;  // By key, as told.
};

}  // namespace snug::server

#endif  // SERVER_HTTP_SNAPSHOT_H_
