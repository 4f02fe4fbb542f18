// What the schema promises of every method, asked of the API itself: which fields are needed, who
// may call, and that a job's name stands for its id.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/api/field_behavior.pb.h"
#include "server/api/authorise.h"
#include "server/api/required.h"
#include "server/job/errors.h"
#include "server/job/names.h"
#include "tests/server/api/api_fixture.h"

namespace snug::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using testing::ElementsAre;

const google::protobuf::ServiceDescriptor& Service() {
  return *google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
      "snug.v1.FineTuning");
}

std::vector<google::api::FieldBehavior> BehaviourOf(const FieldDescriptor& field) {
  std::vector<google::api::FieldBehavior> all;
  for (int i = 0; i < field.options().ExtensionSize(google::api::field_behavior); ++i)
    all.push_back(field.options().GetExtension(google::api::field_behavior, i));
  return all;
}

// A field's message, where it is ours; a map's message is that of its values.
const Descriptor* Inner(const FieldDescriptor& field) {
  const Descriptor* inner = field.message_type();
  if (field.is_map()) inner = inner->map_value()->message_type();
  const bool is_ours = inner != nullptr && absl::StartsWith(inner->full_name(), "snug.");
  return is_ours ? inner : nullptr;
}

// Each field of the message, and of those of ours in it.
void EachField(const Descriptor& type, const std::function<void(const FieldDescriptor&)>& look) {
  for (int i = 0; i < type.field_count(); ++i) {
    look(*type.field(i));
    if (const Descriptor* inner = Inner(*type.field(i))) EachField(*inner, look);
  }
}

TEST(FieldBehaviourTest, EveryFieldOfARequestSaysWhetherItIsNeeded) {
  int needed = 0;
  for (int i = 0; i < Service().method_count(); ++i)
    EachField(*Service().method(i)->input_type(), [&](const FieldDescriptor& field) {
      const auto behaviour = BehaviourOf(field);
      ASSERT_EQ(behaviour.size(), 1u) << field.full_name();
      EXPECT_TRUE(behaviour[0] == google::api::REQUIRED || behaviour[0] == google::api::OPTIONAL)
          << field.full_name();
      needed += behaviour[0] == google::api::REQUIRED ? 1 : 0;
    });
  EXPECT_GE(needed, 30);
}

// What a client may send is OPTIONAL or REQUIRED in answers, too: a job's spec.
TEST(FieldBehaviourTest, EveryFieldOfAnAnswerSaysWhoSetsIt) {
  std::set<std::string> seen;
  for (int i = 0; i < Service().method_count(); ++i)
    EachField(*Service().method(i)->output_type(), [&](const FieldDescriptor& field) {
      EXPECT_EQ(BehaviourOf(field).size(), 1u) << field.full_name();
      seen.insert(std::string(field.containing_type()->name()));
    });
  for (const char* type : {"Job", "JobSpec", "TrainingSpec", "StashOptions", "Plan", "File",
                           "Token", "Checkpoint", "Artifact", "Device", "ServerInfo", "Upload"})
    EXPECT_TRUE(seen.contains(type)) << type;
}

TEST(FieldBehaviourTest, WhoSetsTheFieldsOfAJob) {
  const auto is = [](const char* field, google::api::FieldBehavior behaviour) {
    const std::vector<std::string> path = absl::StrSplit(field, '.');
    const Descriptor* type = v1::Job::descriptor();
    for (size_t i = 0; i + 1 < path.size(); ++i)
      type = type->FindFieldByName(path[i])->message_type();
    EXPECT_THAT(BehaviourOf(*type->FindFieldByName(path.back())), ElementsAre(behaviour)) << field;
  };
  is("id", google::api::OUTPUT_ONLY);
  is("spec", google::api::IMMUTABLE);
  is("labels", google::api::OPTIONAL);
  is("progress.global_step", google::api::OUTPUT_ONLY);
  is("spec.model", google::api::REQUIRED);
  is("spec.method", google::api::OPTIONAL);  // A preview goes without it.
  is("spec.datasets.path", google::api::REQUIRED);
  is("spec.training.max_steps", google::api::OPTIONAL);
}

// Something that is no default, in a field of its own kind.
void Fill(Message& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  if (field.is_repeated())
    static_cast<void>(reflection.AddMessage(&message, &field));
  else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
    static_cast<void>(reflection.MutableMessage(&message, &field));
  else if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM)
    reflection.SetEnumValue(&message, &field, 1);
  else if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64)
    reflection.SetInt64(&message, &field, 1);
  else
    reflection.SetString(&message, &field, "x");
}

class ContractTest : public ApiTest {
 protected:
  using Ask = std::function<absl::Status(const Principal& who, const Message& request)>;

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(ApiTest::SetUp());
    AddMost();
    AddForOperators();
    AddStream(&Api::GetJobLogs);
    AddStream(&Api::DownloadJob);
    AddStream(&Api::Sample);
    AddStream(&Api::BackupStore);
    asks_["WatchJob"] = [this](const Principal& who, const Message& request) {
      return api_
          ->WatchJob(who, dynamic_cast<const v1::WatchJobRequest&>(request),
                     std::shared_ptr<JobWatcher>())
          .status();
    };
    asks_["UploadFile"] = [this](const Principal& who, const Message& request) {
      return api_->UploadFile(who, dynamic_cast<const v1::UploadFileRequest&>(request).header())
          .status();
    };
  }
  template <typename Request, typename Response>
  void Add(void (Api::*method)(const Principal&, const Request&, Answer<Response>)) {
    asks_[NameOf<Request>()] = [this, method](const Principal& who, const Message& request) {
      return Call(method, who, dynamic_cast<const Request&>(request)).status();
    };
  }
  template <typename Request, typename Response>
  void AddStream(absl::StatusOr<MessageSource<Response>> (Api::*method)(const Principal&,
                                                                        const Request&)) {
    asks_[NameOf<Request>()] = [this, method](const Principal& who, const Message& request) {
      return (api_.get()->*method)(who, dynamic_cast<const Request&>(request)).status();
    };
  }
  template <typename Request>
  static std::string NameOf() {
    const std::string name = Request::descriptor()->name();
    return name.substr(0, name.rfind("Request"));
  }
  void AddMost() {
    Add(&Api::CreateJob);
    Add(&Api::PlanJob);
    Add(&Api::PreviewDataset);
    Add(&Api::GetJob);
    Add(&Api::ListJobs);
    Add(&Api::CancelJob);
    Add(&Api::PauseJob);
    Add(&Api::ResumeJob);
    Add(&Api::SqueezeJob);
    Add(&Api::RelaxJob);
    Add(&Api::UpdateJob);
    Add(&Api::RerunJob);
    Add(&Api::ExtendJob);
    Add(&Api::DeleteJob);
    Add(&Api::ListCheckpoints);
    Add(&Api::ListArtifacts);
    Add(&Api::GetMetricHistory);
    Add(&Api::GetServerInfo);
    Add(&Api::GetUpload);
    Add(&Api::ListFiles);
    Add(&Api::GetFile);
    Add(&Api::DeleteFile);
  }
  void AddForOperators() {
    Add(&Api::CheckStore);
    Add(&Api::CreateSession);
    Add(&Api::CreateToken);
    Add(&Api::ListTokens);
    Add(&Api::RevokeToken);
    Add(&Api::DrainDevice);
    Add(&Api::UndrainDevice);
  }

  // With all that is needed, and nothing that there is.
  static std::unique_ptr<Message> RequestOf(const Descriptor& type) {
    std::unique_ptr<Message> request(
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
    for (int i = 0; i < type.field_count(); ++i)
      if (IsRequired(*type.field(i))) Fill(*request, *type.field(i));
    if (auto* upload = dynamic_cast<v1::UploadFileRequest*>(request.get()))
      upload->mutable_header()->set_filename("x");
    return request;
  }
  std::map<std::string, Ask> asks_;
};

TEST_F(ContractTest, WhatIsNeededIsRefusedWhereItIsAbsent) {
  ASSERT_EQ(asks_.size(), static_cast<size_t>(Service().method_count()));
  for (int i = 0; i < Service().method_count(); ++i) {
    const auto& method = *Service().method(i);
    const Descriptor& type = *method.input_type();
    const Ask& ask = asks_.at(std::string(method.name()));
    const auto missed = [&](const Message& request) {
      std::vector<std::string> fields;
      for (const auto& [field, what] : FieldsOf(ask(root_, request)))
        if (what == "is needed") fields.push_back(field);
      return fields;
    };
    EXPECT_THAT(missed(*RequestOf(type)), ElementsAre()) << method.name();
    for (int f = 0; f < type.field_count(); ++f) {
      if (!IsRequired(*type.field(f))) continue;
      const std::unique_ptr<Message> request = RequestOf(type);
      request->GetReflection()->ClearField(request.get(), type.field(f));
      EXPECT_TRUE(absl::IsInvalidArgument(ask(root_, *request))) << type.field(f)->full_name();
      EXPECT_THAT(missed(*request), ElementsAre(std::string(type.field(f)->name())))
          << type.field(f)->full_name();
    }
  }
  const absl::Status nameless = api_->UploadFile(root_, v1::UploadHeader()).status();
  EXPECT_EQ(FieldsOf(nameless).at(0).first, "header.filename");
  v1::CreateJobRequest modelless = Request("");
  modelless.mutable_spec()->clear_model();
  EXPECT_EQ(FieldsOf(Call(&Api::CreateJob, root_, modelless).status()).at(0).first, "spec.model");
}

constexpr const char* kViewers[] = {
    "ListJobs",         "GetServerInfo", "GetJob",          "WatchJob",      "GetJobLogs",
    "GetMetricHistory", "DownloadJob",   "ListCheckpoints", "ListArtifacts", "CreateSession"};
constexpr const char* kUsers[] = {
    "PlanJob",  "PreviewDataset", "UploadFile", "GetUpload", "ListFiles", "GetFile",
    "Sample",   "DeleteFile",     "CreateJob",  "CancelJob", "PauseJob",  "ResumeJob",
    "RelaxJob", "SqueezeJob",     "UpdateJob",  "RerunJob",  "ExtendJob", "DeleteJob"};
constexpr const char* kOperators[] = {"BackupStore", "CheckStore", "DrainDevice", "UndrainDevice"};
constexpr const char* kTheDaemons[] = {"CreateToken", "ListTokens", "RevokeToken"};
// What a browser's session may call of these.
constexpr const char* kReads[] = {
    "ListJobs",         "GetServerInfo", "GetJob",          "WatchJob",      "GetJobLogs",
    "GetMetricHistory", "DownloadJob",   "ListCheckpoints", "ListArtifacts", "PlanJob",
    "PreviewDataset",   "GetUpload",     "ListFiles",       "GetFile",       "Sample"};

// The methods' names of the lists up to the caller's.
std::set<std::string> Allowed(int lists) {
  std::set<std::string> all;
  if (lists > 0) all.insert(std::begin(kViewers), std::end(kViewers));
  if (lists > 1) all.insert(std::begin(kUsers), std::end(kUsers));
  if (lists > 2) all.insert(std::begin(kOperators), std::end(kOperators));
  if (lists > 3) all.insert(std::begin(kTheDaemons), std::end(kTheDaemons));
  return all;
}

// Asked of every method itself, and not of the table: one that forgets to look would answer.
TEST_F(ContractTest, EveryMethodAnswersThoseWhoMayCallItAndNobodyElse) {
  ASSERT_EQ(Allowed(4).size(), static_cast<size_t>(Service().method_count()));
  struct Caller {
    const char* name;
    Principal who;
    std::set<std::string> may;
  };
  const auto of_tenant = [&](v1::Token::Role role) {
    Principal who = tenant_;
    who.role = role;
    return who;
  };
  Principal session = of_tenant(v1::Token::ROLE_USER);
  session.reads_only = true;
  const std::set<std::string> reads(std::begin(kReads), std::end(kReads));
  const Caller callers[] = {
      {"viewer", of_tenant(v1::Token::ROLE_VIEWER), Allowed(1)},
      {"user", of_tenant(v1::Token::ROLE_USER), Allowed(2)},
      {"user of the socket", {.uid = 1234, .gid = 1234}, Allowed(2)},
      {"auditor", of_tenant(v1::Token::ROLE_AUDITOR), Allowed(1)},
      {"operator", of_tenant(v1::Token::ROLE_OPERATOR), Allowed(3)},
      {"daemon", root_, Allowed(4)},
      {"session", session, reads},
  };
  for (const Caller& caller : callers)
    for (int i = 0; i < Service().method_count(); ++i) {
      const std::string method(Service().method(i)->name());
      const std::unique_ptr<Message> request = RequestOf(*Service().method(i)->input_type());
      const absl::Status status = asks_.at(method)(caller.who, *request);
      EXPECT_EQ(absl::IsPermissionDenied(status), !caller.may.contains(method))
          << caller.name << " " << method << " " << status;
      EXPECT_TRUE(absl::IsUnauthenticated(MayCall(std::nullopt, method))) << method;
    }
}

// Whoever may not call hears that, and not what his request lacks.
TEST_F(ContractTest, AWrongRequestIsNoWayToAsk) {
  Principal viewer = tenant_;
  viewer.role = v1::Token::ROLE_VIEWER;
  EXPECT_TRUE(absl::IsPermissionDenied(Call(&Api::CancelJob, viewer, {}).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(Call(&Api::CreateToken, tenant_, {}).status()));
}

// Of each method that is about a job.
TEST_F(ContractTest, AJobsNameIsTakenForItsId) {
  const v1::Job job = Call(&Api::CreateJob, root_, Request("steps=1")).value();
  const std::string id = job.id(), name = job.name();
  EXPECT_EQ(name, "tenants/default/jobs/" + id);
  int methods = 0;
  for (int i = 0; i < Service().method_count(); ++i) {
    if (Service().method(i)->input_type()->FindFieldByName("id") == nullptr) continue;
    const std::string method(Service().method(i)->name());
    ++methods;
    EXPECT_EQ(Authorise(root_, method, name, index_).value(), id) << method;
    // Of another tenant, whole or not there at all: the same words for all.
    for (const std::string& other :
         {"tenants/lab/jobs/" + id, "tenants/default/jobs/" + id.substr(0, id.size() - 1),
          "tenants/default/datasets/" + id, name + "/", "jobs/" + id}) {
      const absl::Status refused = Authorise(root_, method, other, index_).status();
      EXPECT_EQ(refused, JobNotFound(other)) << method;
    }
    EXPECT_EQ(Authorise(tenant_, method, name, index_).status(), JobNotFound(name)) << method;
  }
  EXPECT_GE(methods, 16);
  v1::CancelJobRequest cancel;
  cancel.set_id(name);
  EXPECT_EQ(Call(&Api::CancelJob, root_, cancel).value().id(), id);
  Await([](const v1::Job& now) { return IsTerminal(now.state()); }, id);
}

}  // namespace
}  // namespace snug::server
