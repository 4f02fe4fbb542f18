// The status page: devices, jobs, their curves and plans, as a browser shows them.
//
// A browser shows the secret of a session (`snug open`) once, in the link, and from then on as a
// cookie, which it sends below /s/ID/ alone: cookies know no ports, and whoever serves on another
// port of this machine must not get it. A script shows the secret, or a token, as
// "Authorization: Bearer SECRET", with or without /s/ID. Without one nothing is answered, the page
// itself included.
//
//   GET /                     the page; /page.js, /page.css
//   GET /api/server           ServerInfo, all as the API's messages in JSON
//   GET /api/jobs             the newest jobs, ended ones included, as ListJobs has them
//   GET /api/jobs/ID          a job
//   GET /api/jobs/ID/plans    its plans as of now: PlanJobResponse
//   GET /api/jobs/ID/metrics  what it has measured: GetMetricHistoryResponse, of 1,000 points each
//   GET /api/events           server-sent events: `server` and `jobs`, those that have changed
#ifndef SERVER_HTTP_STATUS_PAGE_H_
#define SERVER_HTTP_STATUS_PAGE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "server/http/gateway.h"

namespace httplib {
class Server;
struct Request;
struct Response;
}  // namespace httplib

namespace snug::server {

inline constexpr int kMaxPageJobs = 1000;
inline constexpr int kMaxEventStreams = 8;  // Each holds a thread of the server.

class StatusPage {
 public:
  // `server` serves no more when this goes.
  void Serve(httplib::Server& server);
  // To the API; until then it says that the daemon starts.
  void Connect(Api& api, Callers& callers) { gateway_.Connect(api, callers); }
  // Event streams end; more than once does no more.
  void Stop() {
    if (!stopping_.HasBeenNotified()) stopping_.Notify();
  }

 private:
  using Ask = std::function<absl::StatusOr<std::string>(const std::string& secret,
                                                        const httplib::Request& request)>;

  void ServeJson(httplib::Server& server, const char* path, Ask ask);
  void ServeFile(httplib::Server& server, const char* path, const char* type,
                 absl::string_view content);
  void ServePage(const httplib::Request& request, httplib::Response& response) const;
  void ServeEvents(const httplib::Request& request, httplib::Response& response);
  absl::Status Check(const std::string& secret) const;
  absl::StatusOr<v1::Job> GetJob(const std::string& secret, const std::string& id) const;
  absl::StatusOr<std::string> Plans(const std::string& secret, const std::string& id) const;

  Gateway gateway_;
  std::atomic<int> streams_ = 0;
  absl::Notification stopping_;
};

}  // namespace snug::server

#endif  // SERVER_HTTP_STATUS_PAGE_H_
