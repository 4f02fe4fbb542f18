#include "server/http/status_page.h"

#include <httplib.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "proto/snug/status_macros.h"
#include "server/data/sha256.h"
#include "server/http/page_files.h"
#include "server/http/requests.h"
#include "server/http/snapshot.h"
#include "server/job/job_ref.h"

namespace snug::server {
namespace {

constexpr const char* kCookie = "snug_session=";
constexpr const char* kQuery = "session";  // Of the link that `snug open` prints.
constexpr absl::Duration kBetweenEvents = absl::Seconds(1);
constexpr absl::Duration kMaxSilence = absl::Seconds(10);  // Then a browser hears that it is there.
constexpr const char* kJson = "application/json";
constexpr size_t kIdDigits = 16;
constexpr const char* kSession = "(?:/s/[0-9a-f]{16})?";  // Of a session, before every path.

// Of a session's address: nobody else can guess it, and it does not give the secret away.
std::string AddressOf(const std::string& secret) {
  return absl::StrCat("/s/", Sha256Hex(secret).substr(0, kIdDigits), "/");
}

// What he showed: the header, else the cookie.
std::string SecretOf(const httplib::Request& request) {
  if (std::string shown = BearerOf(request); !shown.empty()) return shown;
  const std::string cookies = request.get_header_value("Cookie");
  for (absl::string_view cookie : absl::StrSplit(cookies, "; "))
    if (absl::ConsumePrefix(&cookie, kCookie)) return std::string(cookie);
  return "";
}

}  // namespace

void StatusPage::Serve(httplib::Server& server) {
  server.Get(absl::StrCat(kSession, "/"),
             [this](const httplib::Request& request, httplib::Response& response) {
               ServePage(request, response);
             });
  ServeFile(server, "/page.css", "text/css; charset=utf-8", kPageCss);
  ServeFile(server, "/page.js", "text/javascript; charset=utf-8", kPageJs);
  ServeFile(server, "/charts.js", "text/javascript; charset=utf-8", kChartsJs);
  ServeJson(server, "/api/server",
            [this](const std::string& secret, const auto&) -> absl::StatusOr<std::string> {
              ASSIGN_OR_RETURN(
                  const v1::ServerInfo info,
                  gateway_.Call(&Api::GetServerInfo, secret, v1::GetServerInfoRequest()));
              return JsonOf(info);
            });
  ServeJson(server, "/api/jobs",
            [this](const std::string& secret, const auto&) -> absl::StatusOr<std::string> {
              ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs,
                               NewestJobs(gateway_, secret, kMaxPageJobs));
              v1::ListJobsResponse list;
              list.mutable_jobs()->Add(jobs.begin(), jobs.end());
              return JsonOf(list);
            });
  ServeJson(server, "/api/jobs/([a-z0-9.-]+)",
            [this](const std::string& secret, const auto& request) -> absl::StatusOr<std::string> {
              ASSIGN_OR_RETURN(const v1::Job job, GetJob(secret, request.matches[1]));
              return JsonOf(job);
            });
  ServeJson(server, "/api/jobs/([a-z0-9.-]+)/plans",
            [this](const std::string& secret, const auto& request) {
              return Plans(secret, request.matches[1]);
            });
  ServeJson(server, "/api/jobs/([a-z0-9.-]+)/metrics",
            [this](const std::string& secret, const auto& request) -> absl::StatusOr<std::string> {
              v1::GetMetricHistoryRequest asked;
              asked.set_id(request.matches[1]);
              ASSIGN_OR_RETURN(const v1::GetMetricHistoryResponse history,
                               gateway_.Call(&Api::GetMetricHistory, secret, asked));
              return JsonOf(history);
            });
  server.Get(absl::StrCat(kSession, "/api/events"),
             [this](const httplib::Request& request, httplib::Response& response) {
               ServeEvents(request, response);
             });
}

void StatusPage::ServeJson(httplib::Server& server, const char* path, Ask ask) {
  server.Get(absl::StrCat(kSession, path),
             [ask = std::move(ask)](const httplib::Request& request, httplib::Response& response) {
               absl::StatusOr<std::string> answer = ask(SecretOf(request), request);
               if (!answer.ok()) return Refuse(answer.status(), response);
               response.set_content(*std::move(answer), kJson);
             });
}

void StatusPage::ServeFile(httplib::Server& server, const char* path, const char* type,
                           absl::string_view content) {
  server.Get(absl::StrCat(kSession, path),
             [this, type, content](const httplib::Request& request, httplib::Response& response) {
               const absl::Status let_in = Check(SecretOf(request));
               if (!let_in.ok()) return Refuse(let_in, response);
               response.set_content(content.data(), content.size(), type);
             });
}

// The link's secret becomes a cookie that no script reads, no other site sends along and no other
// port gets; the address bar does not keep it.
void StatusPage::ServePage(const httplib::Request& request, httplib::Response& response) const {
  const bool from_link = request.has_param(kQuery);
  const std::string secret = from_link ? request.get_param_value(kQuery) : SecretOf(request);
  // Addresses are kept by browsers and proxies: a token, which outlives the daemon, is none's.
  const bool is_link = absl::StartsWith(secret, kSessionPrefix);
  const absl::Status let_in = from_link && !is_link
                                  ? absl::UnauthenticatedError("no token is taken from an address")
                                  : Check(secret);
  if (!let_in.ok()) return Refuse(let_in, response);
  if (!from_link) {
    response.set_content(kPageHtml.data(), kPageHtml.size(), "text/html; charset=utf-8");
    return;
  }
  const std::string address = AddressOf(secret);
  response.set_header("Set-Cookie",
                      absl::StrCat(kCookie, secret, "; HttpOnly; SameSite=Strict; Path=", address,
                                   request.ssl == nullptr ? "" : "; Secure"));
  response.set_redirect(address, 303);
}

absl::Status StatusPage::Check(const std::string& secret) const {
  return gateway_.Call(&Api::GetServerInfo, secret, v1::GetServerInfoRequest()).status();
}

absl::StatusOr<v1::Job> StatusPage::GetJob(const std::string& secret, const std::string& id) const {
  v1::GetJobRequest request;
  request.set_id(id);
  return gateway_.Call(&Api::GetJob, secret, request);
}

absl::StatusOr<std::string> StatusPage::Plans(const std::string& secret,
                                              const std::string& id) const {
  ASSIGN_OR_RETURN(const v1::Job job, GetJob(secret, id));
  v1::PlanJobRequest request;
  *request.mutable_spec() = SpecFor("", job);  // By names: who looks may be of another tenant.
  request.set_device(job.device());
  request.set_with_timeline(true);
  ASSIGN_OR_RETURN(const v1::PlanJobResponse plans, gateway_.Call(&Api::PlanJob, secret, request));
  return JsonOf(plans);
}

void StatusPage::ServeEvents(const httplib::Request& request, httplib::Response& response) {
  const std::string secret = SecretOf(request);
  const absl::Status let_in = Check(secret);
  if (!let_in.ok()) return Refuse(let_in, response);
  if (++streams_ > kMaxEventStreams) {
    --streams_;
    return Refuse(absl::ResourceExhaustedError(
                      absl::StrCat(kMaxEventStreams, " pages are open, which is the most")),
                  response);
  }
  const auto feed = std::make_shared<EventFeed>(gateway_, secret);
  const auto silence = std::make_shared<absl::Duration>(kMaxSilence);
  response.set_chunked_content_provider(
      "text/event-stream",
      [this, feed, silence](size_t offset, httplib::DataSink& sink) {
        if (offset > 0 && stopping_.WaitForNotificationWithTimeout(kBetweenEvents)) return false;
        absl::StatusOr<std::string> events = feed->Next();
        if (!events.ok()) return false;  // The browser connects again, and is told why.
        *silence += kBetweenEvents;
        if (events->empty() && *silence >= kMaxSilence) *events = ": still here\n\n";
        if (events->empty()) return true;
        *silence = absl::ZeroDuration();
        return sink.write(events->data(), events->size());
      },
      [this](bool) { --streams_; });
}

}  // namespace snug::server
