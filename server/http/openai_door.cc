#include "server/http/openai_door.h"

#include <httplib.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/http/connection.h"
#include "server/http/openai_objects.h"
#include "server/http/requests.h"
#include "server/job/job_key.h"
#include "server/job/principal.h"

namespace snug::server {
namespace {

using nlohmann::json;

constexpr const char* kJson = "application/json";
constexpr size_t kMaxBodyBytes = 256 << 10;
constexpr size_t kMaxFieldBytes = 1 << 10;  // Of a form, beside the file.
constexpr int kMaxJobs = 1000;              // Of which a list is a part.
constexpr const char* kJobs = "/v1/fine_tuning/jobs";
constexpr const char* kFiles = "/v1/files";
constexpr const char* kId = "/([a-z0-9.-]+)";

void Respond(const absl::StatusOr<json>& reply, httplib::Response& response) {
  if (reply.ok()) {
    response.set_content(reply->dump(-1, ' ', false, json::error_handler_t::replace) + "\n", kJson);
    return;
  }
  response.status = HttpCode(reply.status());
  if (response.status == 401) response.set_header("WWW-Authenticate", "Bearer");
  response.set_content(ErrorBody(reply.status()), kJson);
}

absl::StatusOr<size_t> LimitOf(const httplib::Request& request, size_t usual) {
  if (!request.has_param("limit")) return usual;
  int limit = 0;
  if (absl::SimpleAtoi(request.get_param_value("limit"), &limit) && limit >= 1 && limit <= kMaxJobs)
    return static_cast<size_t>(limit);
  return WrongParam("limit", absl::StrCat("must be 1 to ", kMaxJobs));
}

// As the caller spells it, where he spells it out.
std::string IdAskedFor(const httplib::Request& request, const v1::Job& job) {
  const std::string asked = request.matches[1];
  return NameSpelled(asked).empty() ? job.id() : asked;
}

absl::StatusOr<json> ListOf(const httplib::Request& request, const std::vector<json>& all,
                            size_t usual) {
  ASSIGN_OR_RETURN(const size_t limit, LimitOf(request, usual));
  return ListObject(all, request.get_param_value("after"), limit);
}

// Calls `add` with every page of the API's list.
template <typename Request, typename Ask, typename Add>
absl::Status EachPage(Request request, const Ask& ask, const Add& add) {
  request.set_page_size(kMaxJobs);
  do {
    ASSIGN_OR_RETURN(const auto page, ask(request));
    add(page);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return absl::OkStatus();
}

absl::StatusOr<std::string> BodyOf(const httplib::Request& request,
                                   const httplib::ContentReader& content) {
  if (request.is_multipart_form_data()) return absl::InvalidArgumentError("no form is expected");
  std::string body;
  const auto take = [&](const char* data, size_t bytes) {
    Connection::NoteTaken();
    body.append(data, std::min(bytes, kMaxBodyBytes + 1 - body.size()));
    return body.size() <= kMaxBodyBytes;
  };
  if (content(take)) return body;
  return absl::InvalidArgumentError(
      absl::StrCat("the body is larger than ", kMaxBodyBytes, " bytes, or broke off"));
}

// The parts of a form as they come: fields into a text each, the file to the daemon.
class Form {
 public:
  Form(const Gateway& gateway, const std::string& secret) : gateway_(gateway), secret_(secret) {}

  bool Begin(const httplib::MultipartFormData& part) {
    name_ = part.name;
    if (name_ != "file") return true;
    auto upload = gateway_.Upload(secret_, part.filename);
    status_ = upload.status();
    if (upload.ok()) upload_ = *std::move(upload);
    return upload.ok();
  }

  bool Take(const char* data, size_t bytes) {
    Connection::NoteTaken();
    if (name_ == "file") {
      if (status_.ok()) status_ = upload_->Append({data, bytes});
      return status_.ok();
    }
    std::string& text = fields_[name_];
    text.append(data, std::min(bytes, kMaxFieldBytes - text.size()));
    return fields_.size() < 16;
  }

  // `whole`: all of it has come.
  absl::StatusOr<json> End(bool whole) {
    RETURN_IF_ERROR(status_);
    if (upload_ == nullptr) return WrongParam("file", "is needed, in a form of several parts");
    const std::string& purpose = fields_["purpose"];
    if (!whole) return absl::InvalidArgumentError("the upload broke off");
    if (purpose != "fine-tune")
      return WrongParam("purpose", absl::StrCat("\"", purpose, "\" is not offered; fine-tune is"));
    ASSIGN_OR_RETURN(const v1::File file, upload_->Finish());
    return FileObject(file);
  }

 private:
  const Gateway& gateway_;
  const std::string secret_;
  std::string name_;  // Of the part that comes.
  std::map<std::string, std::string> fields_;
  std::unique_ptr<FileUpload> upload_;
  absl::Status status_;  // Why the daemon takes no more of it.
};

absl::Status NotOffered(const httplib::Request& request) {
  return absl::NotFoundError(
      absl::StrCat(request.method, " ", request.path,
                   " is not offered here: of this API there are /v1/files and "
                   "/v1/fine_tuning/jobs, with cancel, pause, resume, events and checkpoints"));
}

}  // namespace

void OpenAiDoor::Serve(httplib::Server& server) {
  ServeFiles(server);
  ServeJobs(server);
  const auto refuse = [](const httplib::Request& request, httplib::Response& response) {
    Respond(NotOffered(request), response);
  };
  server.Get("/v1/.*", refuse);
  server.Delete("/v1/.*", refuse);
  // Whatever else is sent anywhere is not even read.
  server.Post(".*", [refuse](const httplib::Request& request, httplib::Response& response,
                             const httplib::ContentReader&) {
    response.set_header("Connection", "close");
    refuse(request, response);
  });
}

void OpenAiDoor::ServeFiles(httplib::Server& server) {
  const auto get = [&](const std::string& path, Ask ask) {
    server.Get(
        path, [ask = std::move(ask)](const httplib::Request& request, httplib::Response& response) {
          Respond(ask(BearerOf(request), request), response);
        });
  };
  server.Post(kFiles, [this](const httplib::Request& request, httplib::Response& response,
                             const httplib::ContentReader& content) {
    Respond(Upload(BearerOf(request), request, content), response);
  });
  get(kFiles, [this](const std::string& secret, const httplib::Request& request) -> Reply {
    std::vector<json> files;
    const auto add = [&](const v1::ListFilesResponse& page) {
      for (const v1::File& file : page.files()) files.push_back(FileObject(file));
    };
    const auto ask = [&](const v1::ListFilesRequest& call) {
      return gateway_.Call(&Api::ListFiles, secret, call);
    };
    RETURN_IF_ERROR(EachPage(v1::ListFilesRequest(), ask, add));
    return ListOf(request, files, kMaxJobs);
  });
  get(absl::StrCat(kFiles, kId),
      [this](const std::string& secret, const httplib::Request& request) -> Reply {
        v1::GetFileRequest get;
        get.set_file(request.matches[1]);
        ASSIGN_OR_RETURN(const v1::File file, gateway_.Call(&Api::GetFile, secret, get));
        return FileObject(file);
      });
  server.Delete(absl::StrCat(kFiles, kId), [this](const httplib::Request& request,
                                                  httplib::Response& response) {
    v1::DeleteFileRequest call;
    call.set_file(request.matches[1]);
    const auto file = gateway_.Call(&Api::DeleteFile, BearerOf(request), call);
    if (!file.ok()) return Respond(file.status(), response);
    Respond(json{{"id", file->id()}, {"object", "file"}, {"deleted", true}}, response);
  });
}

void OpenAiDoor::ServeJobs(httplib::Server& server) {
  const auto get = [&](const std::string& path, Ask ask) {
    server.Get(
        path, [ask = std::move(ask)](const httplib::Request& request, httplib::Response& response) {
          Respond(ask(BearerOf(request), request), response);
        });
  };
  server.Post(kJobs, [this](const httplib::Request& request, httplib::Response& response,
                            const httplib::ContentReader& content) {
    Respond(CreateJob(BearerOf(request), request, content), response);
  });
  get(kJobs, [this](const std::string& secret, const httplib::Request& request) {
    return ListJobs(secret, request);
  });
  get(absl::StrCat(kJobs, kId),
      [this](const std::string& secret, const httplib::Request& request) -> Reply {
        ASSIGN_OR_RETURN(const v1::Job job, FindJob(secret, request.matches[1]));
        return JobObject(job, IdAskedFor(request, job));
      });
  get(absl::StrCat(kJobs, kId, "/events"),
      [this](const std::string& secret, const httplib::Request& request) -> Reply {
        ASSIGN_OR_RETURN(const v1::Job job, FindJob(secret, request.matches[1]));
        const auto metrics = gateway_.MetricsOf(secret, job.name());
        return ListOf(request, EventObjects(job, metrics.value_or("")), 20);
      });
  get(absl::StrCat(kJobs, kId, "/checkpoints"),
      [this](const std::string& secret, const httplib::Request& request) -> Reply {
        v1::ListCheckpointsRequest call;
        call.set_id(request.matches[1]);
        std::vector<json> checkpoints;
        const auto add = [&](const v1::ListCheckpointsResponse& page) {
          for (const v1::Checkpoint& checkpoint : page.checkpoints())
            checkpoints.push_back(CheckpointObject(call.id(), checkpoint));
        };
        const auto ask = [&](const v1::ListCheckpointsRequest& page) {
          return gateway_.Call(&Api::ListCheckpoints, secret, page);
        };
        RETURN_IF_ERROR(EachPage(call, ask, add));
        return ListOf(request, checkpoints, 10);
      });
  ServeChange<v1::CancelJobRequest>(server, "cancel", &Api::CancelJob);
  ServeChange<v1::PauseJobRequest>(server, "pause", &Api::PauseJob);
  ServeChange<v1::ResumeJobRequest>(server, "resume", &Api::ResumeJob);
}

template <typename Request>
void OpenAiDoor::ServeChange(httplib::Server& server, const char* verb,
                             void (Api::*method)(const Principal&, const Request&,
                                                 Answer<v1::Job>)) {
  server.Post(
      absl::StrCat(kJobs, kId, "/", verb),
      [this, method](const httplib::Request& request, httplib::Response& response,
                     const httplib::ContentReader& content) {
        const std::string secret = BearerOf(request);
        if (const absl::Status let_in = gateway_.Check(secret); !let_in.ok())
          return Respond(let_in, response);
        const absl::StatusOr<std::string> body = BodyOf(request, content);
        if (!body.ok()) return Respond(body.status(), response);
        Request call;
        call.set_id(request.matches[1]);
        const auto job = gateway_.Call(method, secret, call);
        Respond(job.ok() ? Reply(JobObject(*job, IdAskedFor(request, *job))) : Reply(job.status()),
                response);
      });
}

OpenAiDoor::Reply OpenAiDoor::CreateJob(const std::string& secret, const httplib::Request& request,
                                        const httplib::ContentReader& content) const {
  RETURN_IF_ERROR(gateway_.Check(secret));
  ASSIGN_OR_RETURN(const std::string body, BodyOf(request, content));
  v1::CreateJobRequest create;
  ASSIGN_OR_RETURN(*create.mutable_spec(), SpecOf(body));
  ASSIGN_OR_RETURN(const v1::Job job, gateway_.Call(&Api::CreateJob, secret, create));
  return JobObject(job);
}

OpenAiDoor::Reply OpenAiDoor::ListJobs(const std::string& secret,
                                       const httplib::Request& request) const {
  v1::ListJobsRequest call;
  call.set_all(true);
  call.set_page_size(kMaxJobs);
  call.mutable_read_mask()->add_paths(std::string(1, '*'));
  ASSIGN_OR_RETURN(const v1::ListJobsResponse list, gateway_.Call(&Api::ListJobs, secret, call));
  std::vector<json> jobs;
  std::set<std::string> tenants;
  for (const v1::Job& job : list.jobs()) tenants.insert(TenantOf(job.owner()));
  for (const v1::Job& job : list.jobs())
    jobs.push_back(JobObject(job, tenants.size() == 1 ? job.id() : SpelledOut(job)));
  return ListOf(request, jobs, 20);
}

OpenAiDoor::Reply OpenAiDoor::Upload(const std::string& secret, const httplib::Request& request,
                                     const httplib::ContentReader& content) const {
  if (!request.is_multipart_form_data())
    return WrongParam("file", "is needed, in a form of several parts");
  RETURN_IF_ERROR(gateway_.Check(secret));
  Form form(gateway_, secret);
  const bool whole =
      content([&](const httplib::MultipartFormData& part) { return form.Begin(part); },
              [&](const char* data, size_t bytes) { return form.Take(data, bytes); });
  return form.End(whole);
}

absl::StatusOr<v1::Job> OpenAiDoor::FindJob(const std::string& secret,
                                            const std::string& id) const {
  v1::GetJobRequest request;
  request.set_id(id);
  return gateway_.Call(&Api::GetJob, secret, request);
}

}  // namespace snug::server
