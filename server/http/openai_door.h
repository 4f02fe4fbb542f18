// The part of OpenAI's API that fine-tunes: files, jobs, events, checkpoints; so that its clients
// run jobs here. Each call shows a token ("Authorization: Bearer"), and becomes a call of the
// daemon's own API.
//
//   POST GET    /v1/files, GET DELETE /v1/files/ID
//   POST GET    /v1/fine_tuning/jobs, GET /v1/fine_tuning/jobs/ID
//   POST        /v1/fine_tuning/jobs/ID/cancel, pause, resume
//   GET         /v1/fine_tuning/jobs/ID/events, checkpoints
//
// All else below /v1/ is refused in that API's own words.
#ifndef SERVER_HTTP_OPENAI_DOOR_H_
#define SERVER_HTTP_OPENAI_DOOR_H_

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "server/http/gateway.h"

namespace httplib {
class ContentReader;
class Server;
struct Request;
struct Response;
}  // namespace httplib

namespace snug::server {

class OpenAiDoor {
 public:
  // `server` serves no more when this goes.
  void Serve(httplib::Server& server);
  // To the API; until then it says that the daemon starts.
  void Connect(Api& api, Callers& callers) { gateway_.Connect(api, callers); }

 private:
  using Reply = absl::StatusOr<nlohmann::json>;
  using Ask = std::function<Reply(const std::string& secret, const httplib::Request& request)>;
  using Act = std::function<Reply(const std::string& secret, const httplib::Request& request,
                                  const httplib::ContentReader& content)>;

  void ServeJobs(httplib::Server& server);
  void ServeFiles(httplib::Server& server);
  template <typename Request>
  void ServeChange(httplib::Server& server, const char* verb,
                   void (Api::*method)(const Principal&, const Request&, Answer<v1::Job>));

  Reply CreateJob(const std::string& secret, const httplib::Request& request,
                  const httplib::ContentReader& content) const;
  Reply ListJobs(const std::string& secret, const httplib::Request& request) const;
  Reply Upload(const std::string& secret, const httplib::Request& request,
               const httplib::ContentReader& content) const;
  absl::StatusOr<v1::Job> FindJob(const std::string& secret, const std::string& id) const;

  Gateway gateway_;
};

}  // namespace snug::server

#endif  // SERVER_HTTP_OPENAI_DOOR_H_
