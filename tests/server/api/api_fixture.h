// The API over a scheduler in this process, without gRPC and HTTP.
#ifndef TESTS_SERVER_API_API_FIXTURE_H_
#define TESTS_SERVER_API_API_FIXTURE_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "server/api/api.h"
#include "tests/server/scheduler/scheduler_fixture.h"

namespace snug::server {

class ApiTest : public SchedulerTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Start({}));
    tokens_ = Tokens::Load(*store_).value();
    answering_ = std::make_unique<Answering>(AnsweringParts{.index = index_,
                                                            .preparer = *preparer_,
                                                            .inspector = inspector_,
                                                            .scheduler = *scheduler_,
                                                            .launcher = {},
                                                            .devices = {device_}});
    advisor_ = std::make_unique<Advisor>(
        index_, *preparer_, inspector_,
        Advisor::Settings{.state_dir = dir_ + "/state", .devices = {device_}});
    api_ = std::make_unique<Api>(
        ApiParts{.store = *store_,
                 .index = index_,
                 .scheduler = *scheduler_,
                 .advisor = *advisor_,
                 .answering = *answering_,
                 .pool = pool_,
                 .checks = checks_,
                 .tenants = tenants_,
                 .tokens = *tokens_,
                 .sessions = sessions_,
                 .audit = audit_,
                 .uploads = uploads_,
                 .state_dir = dir_ + "/state",
                 .premises = {.state_dir = dir_ + "/state", .devices = {device_}},
                 .info = {}});
  }
  // As a daemon ends: what runs for a call goes first.
  void TearDown() override {
    scheduler_->Drain();
    pool_.Stop();
    checks_.Stop();
  }

  // The answer, waited for.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(void (Api::*method)(const Principal&, const Request&,
                                                    Answer<Response>),
                                const Principal& who, const Request& request) {
    absl::StatusOr<Response> response;
    absl::Notification answered;
    (api_.get()->*method)(who, request, [&](absl::StatusOr<Response> answer) {
      response = std::move(answer);
      answered.Notify();
    });
    answered.WaitForNotification();
    return response;
  }

  v1::CreateJobRequest Request(const std::string& script) const {
    v1::CreateJobRequest request;
    request.mutable_spec()->set_display_name(script);
    request.mutable_spec()->set_model(dir_ + "/model");
    request.mutable_spec()->set_dataset(dir_ + "/train.jsonl");
    request.mutable_spec()->set_method(v1::JobSpec::METHOD_LORA);
    return request;
  }

  const Principal root_ = DaemonPrincipal();
  const Principal tenant_ = {
      .uid = kNoUser, .gid = kNoUser, .tenant = "lab", .credential = "token:t1"};

  TaskPool pool_{4};
  FairPool checks_{FairPool::Threads{.any = 2, .waiting = kMaxWaitingChecks}};
  Tenants tenants_;
  Sessions sessions_;
  AuditLog audit_{dir_ + "/audit.log"};
  Uploads uploads_{dir_ + "/uploads"};
  std::unique_ptr<Tokens> tokens_;
  std::unique_ptr<Answering> answering_;
  std::unique_ptr<Advisor> advisor_;
  std::unique_ptr<Api> api_;
};

}  // namespace snug::server

#endif  // TESTS_SERVER_API_API_FIXTURE_H_
