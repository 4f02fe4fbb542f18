// Names, pages and masks of what the API has: that each call takes and gives them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/api/callers.h"
#include "server/job/errors.h"
#include "tests/server/api/api_fixture.h"

namespace snug::server {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

class ResourcesTest : public ApiTest {
 protected:
  // That has ended, of the daemon's own user; with a checkpoint of step 4.
  std::string Trained() {
    v1::CreateJobRequest request = Request("steps=4");
    request.mutable_spec()->mutable_training()->set_save_steps(2);
    const std::string id = Call(&Api::CreateJob, root_, request).value().id();
    EXPECT_EQ(Await([](const v1::Job& job) { return IsTerminal(job.state()); }, id).state(),
              v1::Job::STATE_SUCCEEDED);
    return id;
  }
  template <typename Sent>
  static Sent Named(const std::string& id) {
    Sent request;
    request.set_id(id);
    return request;
  }
};

TEST_F(ResourcesTest, CheckpointsAndArtifactsAreKnownByTheirNames) {
  const std::string id = Trained();
  const auto checkpoints =
      Call(&Api::ListCheckpoints, root_, Named<v1::ListCheckpointsRequest>(id)).value();
  ASSERT_GT(checkpoints.checkpoints_size(), 0);
  const v1::Checkpoint& newest = checkpoints.checkpoints(0);
  const auto artifacts =
      Call(&Api::ListArtifacts, root_, Named<v1::ListArtifactsRequest>(newest.name())).value();
  ASSERT_GT(artifacts.artifacts_size(), 0);
  EXPECT_THAT(artifacts.artifacts(0).name(), HasSubstr(newest.name() + "/artifacts/"));
  const auto first_of = [this](v1::DownloadJobRequest request) {
    auto source = api_->DownloadJob(root_, request);
    EXPECT_TRUE(source.ok()) << source.status();
    return (*source)().value().message;
  };
  const v1::FileChunk chunk =
      first_of(Named<v1::DownloadJobRequest>(artifacts.artifacts(0).name()));
  EXPECT_EQ(chunk.path(), artifacts.artifacts(0).path());
  EXPECT_EQ(chunk.file_bytes(), artifacts.artifacts(0).bytes());
  const auto output = Call(&Api::ListArtifacts, root_, Named<v1::ListArtifactsRequest>(id)).value();
  EXPECT_EQ(first_of(Named<v1::DownloadJobRequest>(output.artifacts(1).name())).path(),
            output.artifacts(1).path());

  // A field may say the same once more, and nothing else.
  auto twice = Named<v1::ListArtifactsRequest>(newest.name());
  twice.set_checkpoint_step(newest.global_step());
  EXPECT_TRUE(Call(&Api::ListArtifacts, root_, twice).ok());
  twice.set_checkpoint_step(newest.global_step() + 1);
  EXPECT_EQ(FieldsOf(Call(&Api::ListArtifacts, root_, twice).status()).at(0).first,
            "checkpoint_step");
  auto other = Named<v1::DownloadJobRequest>(output.artifacts(1).name());
  other.set_path(output.artifacts(0).path());
  EXPECT_EQ(FieldsOf(api_->DownloadJob(root_, other).status()).at(0).first, "path");
  // A method about a job has no use for a checkpoint, nor a list for one file.
  EXPECT_TRUE(absl::IsNotFound(
      Call(&Api::CancelJob, root_, Named<v1::CancelJobRequest>(newest.name())).status()));
  EXPECT_TRUE(absl::IsNotFound(
      Call(&Api::ListArtifacts, root_, Named<v1::ListArtifactsRequest>(output.artifacts(1).name()))
          .status()));
}

TEST_F(ResourcesTest, FilesTokensAndDevicesAreKnownByTheirNames) {
  v1::UploadHeader header;
  header.set_filename("a.jsonl");
  const auto upload = api_->UploadFile(tenant_, header).value();
  ASSERT_TRUE(upload->Append("{\"text\": \"a\"}\n").ok());
  const v1::File file = upload->Finish().value();
  EXPECT_EQ(file.name(), "tenants/lab/datasets/" + file.id());
  v1::GetFileRequest get;
  get.set_file(file.name());
  EXPECT_EQ(Call(&Api::GetFile, tenant_, get).value().id(), file.id());
  const absl::Status foreign = Call(&Api::GetFile, root_, get).status();
  EXPECT_EQ(ReasonOf(foreign), "FILE_NOT_FOUND");
  EXPECT_EQ(foreign.message(), absl::StrCat("no file \"", file.name(), "\""));
  v1::CreateJobRequest job = Request("");
  job.mutable_spec()->set_dataset(file.name());
  EXPECT_EQ(ReasonOf(Call(&Api::CreateJob, root_, job).status()), "FILE_NOT_FOUND");
  // It is found for its owner: no folder of this daemon's is a tenant's, and that is said of it.
  EXPECT_THAT(Call(&Api::CreateJob, tenant_, job).status().message(),
              AllOf(HasSubstr(file.id() + "/dataset.jsonl is not below the folders"),
                    Not(HasSubstr("no file"))));
  v1::DeleteFileRequest remove;
  remove.set_file(file.name());
  EXPECT_EQ(Call(&Api::DeleteFile, tenant_, remove).value().name(), file.name());

  v1::CreateTokenRequest order;
  order.set_tenant("lab");
  order.set_role(v1::Token::ROLE_USER);
  const v1::Token token = tokens_->Create(order, 1).value().token();
  EXPECT_EQ(token.name(), "tenants/lab/tokens/" + token.id());
  v1::RevokeTokenRequest revoke;
  revoke.set_token_id("tenants/other/tokens/" + token.id());
  EXPECT_EQ(ReasonOf(Call(&Api::RevokeToken, root_, revoke).status()), "TOKEN_NOT_FOUND");
  revoke.set_token_id(token.name());
  EXPECT_TRUE(Call(&Api::RevokeToken, root_, revoke).value().has_revoke_time());

  v1::DrainDeviceRequest drain;
  drain.set_device("devices/cpu:0");
  EXPECT_TRUE(Call(&Api::DrainDevice, root_, drain).value().drained());
}

TEST_F(ResourcesTest, ListsOfFilesAndTokensHavePages) {
  for (const char* name : {"a.jsonl", "b.jsonl", "c.jsonl"}) {
    v1::UploadHeader header;
    header.set_filename(name);
    ASSERT_TRUE(api_->UploadFile(tenant_, header).value()->Finish().ok());
  }
  v1::ListFilesRequest files;
  files.set_page_size(2);
  const v1::ListFilesResponse first = Call(&Api::ListFiles, tenant_, files).value();
  ASSERT_EQ(first.files_size(), 2);
  files.set_page_token(first.next_page_token());
  const v1::ListFilesResponse second = Call(&Api::ListFiles, tenant_, files).value();
  ASSERT_EQ(second.files_size(), 1);
  EXPECT_EQ(second.next_page_token(), "");
  EXPECT_THAT((std::vector<std::string>{first.files(0).filename(), first.files(1).filename(),
                                        second.files(0).filename()}),
              ElementsAre("c.jsonl", "b.jsonl", "a.jsonl"));
  files.set_parent("tenants/lab");
  EXPECT_EQ(ReasonOf(Call(&Api::ListFiles, tenant_, files).status()), "BAD_PAGE_TOKEN");
  files.set_parent("tenants/other");
  EXPECT_EQ(FieldsOf(Call(&Api::ListFiles, tenant_, files).status()).at(0).first, "parent");

  v1::CreateTokenRequest order;
  order.set_role(v1::Token::ROLE_VIEWER);
  for (const char* tenant : {"lab", "lab", "other"}) {
    order.set_tenant(tenant);
    ASSERT_TRUE(tokens_->Create(order, 1).ok());  // All of one moment.
  }
  v1::ListTokensRequest list;
  list.set_page_size(1);
  std::vector<std::string> tenants;
  do {
    const v1::ListTokensResponse page = Call(&Api::ListTokens, root_, list).value();
    ASSERT_EQ(page.tokens_size(), 1);
    tenants.push_back(page.tokens(0).tenant());
    list.set_page_token(page.next_page_token());
  } while (!list.page_token().empty());
  EXPECT_THAT(tenants, UnorderedElementsAre("lab", "lab", "other"));
  list.set_page_size(0);
  list.set_parent("tenants/lab");
  EXPECT_EQ(Call(&Api::ListTokens, root_, list).value().tokens_size(), 2);
}

TEST_F(ResourcesTest, AMaskSaysWhatOfAJobIsShown) {
  const std::string id = Trained();
  auto get = Named<v1::GetJobRequest>(id);
  get.mutable_read_mask()->add_paths("state");
  get.mutable_read_mask()->add_paths("spec.model");
  const v1::Job shown = Call(&Api::GetJob, root_, get).value();
  EXPECT_EQ(shown.state(), v1::Job::STATE_SUCCEEDED);
  EXPECT_EQ(shown.spec().model(), dir_ + "/model");
  EXPECT_EQ(shown.id() + shown.spec().dataset(), "");
  get.mutable_read_mask()->add_paths("*");
  EXPECT_EQ(Call(&Api::GetJob, root_, get).value().id(), id);
  get.mutable_read_mask()->add_paths("colour");
  EXPECT_EQ(FieldsOf(Call(&Api::GetJob, root_, get).status()).at(0).first, "read_mask");
  v1::GetServerInfoRequest info;
  info.mutable_read_mask()->add_paths("devices");
  EXPECT_EQ(Call(&Api::GetServerInfo, root_, info).value().devices_size(), 1);
  info.mutable_read_mask()->set_paths(0, "version");
  EXPECT_EQ(Call(&Api::GetServerInfo, root_, info).value().devices_size(), 0);
}

class UpdateMaskTest : public ResourcesTest {
 protected:
  // What a job with priority 1 and labels a=1, b=2 has after it.
  absl::StatusOr<v1::Job> Updated(const std::vector<std::string>& paths, bool ended = false) {
    v1::CreateJobRequest create = Request(ended ? "steps=1" : "steps=1000 step_ms=20");
    create.mutable_spec()->set_priority(1);
    (*create.mutable_spec()->mutable_labels())["a"] = "1";
    (*create.mutable_spec()->mutable_labels())["b"] = "2";
    const std::string id = Call(&Api::CreateJob, root_, create).value().id();
    if (ended) Await([](const v1::Job& job) { return IsTerminal(job.state()); }, id);
    v1::UpdateJobRequest update = given_;
    update.set_id(id);
    for (const std::string& path : paths) update.mutable_update_mask()->add_paths(path);
    const absl::StatusOr<v1::Job> updated = Call(&Api::UpdateJob, root_, update);
    const v1::Job now = Call(&Api::GetJob, root_, Named<v1::GetJobRequest>(id)).value();
    EXPECT_EQ(now.priority(), updated.ok() ? updated->priority() : 1);
    if (!ended) Cancel(id);
    if (!ended) Cancelled(id);
    if (!updated.ok()) return updated.status();
    return now;
  }
  static std::string Shown(const absl::StatusOr<v1::Job>& job) {
    if (!job.ok()) return ReasonOf(job.status());
    std::string text = absl::StrCat(job->priority());
    for (const auto& [key, value] :
         std::map<std::string, std::string>(job->labels().begin(), job->labels().end()))
      absl::StrAppend(&text, " ", key, "=", value);
    return text;
  }

  v1::UpdateJobRequest given_;
};

TEST_F(UpdateMaskTest, WhatIsNamedChangesAndOnlyThat) {
  given_.set_priority(7);
  (*given_.mutable_labels())["a"] = "9";
  (*given_.mutable_labels())["c"] = "3";
  EXPECT_EQ(Shown(Updated({})), "7 a=9 b=2 c=3");  // Without a mask: beside what there is.
  EXPECT_EQ(Shown(Updated({"priority"})), "7 a=1 b=2");
  EXPECT_EQ(Shown(Updated({"labels"})), "1 a=9 c=3");
  EXPECT_EQ(Shown(Updated({"labels.a"})), "1 a=9 b=2");
  EXPECT_EQ(Shown(Updated({"labels.b"})), "1 a=1");
  EXPECT_EQ(Shown(Updated({"labels.b", "priority"})), "7 a=1");
  EXPECT_EQ(Shown(Updated({"*"})), "7 a=9 c=3");
  given_.clear_priority();
  EXPECT_EQ(Shown(Updated({"priority"})), "0 a=1 b=2");
}

TEST_F(UpdateMaskTest, WhatCannotBeUpdatedIsRefusedByName) {
  for (const char* path : {"spec", "state", "label", "labels.", "display_name", "priority.x", ""}) {
    const absl::Status status = Updated({path}).status();
    ASSERT_TRUE(absl::IsInvalidArgument(status)) << path;
    EXPECT_EQ(FieldsOf(status).at(0).first, "update_mask");
    EXPECT_THAT(FieldsOf(status).at(0).second, HasSubstr(absl::StrCat("\"", path, "\"")));
  }
  given_.add_remove_labels("a");
  EXPECT_EQ(FieldsOf(Updated({"labels"}).status()).at(0).first, "remove_labels");
}

TEST_F(UpdateMaskTest, OfAnEndedJobLabelsAlone) {
  (*given_.mutable_labels())["c"] = "3";
  given_.set_priority(1);
  EXPECT_EQ(Shown(Updated({"*"}, /*ended=*/true)), "1 c=3");
  given_.set_priority(2);
  EXPECT_EQ(Shown(Updated({"*"}, /*ended=*/true)), "WRONG_STATE");
  EXPECT_EQ(Shown(Updated({"labels"}, /*ended=*/true)), "1 c=3");
}

// What is sent, and what jobs leave, counts together.
TEST_F(ResourcesTest, ATenantBeyondItsBytesSendsNothingAndSubmitsNothing) {
  v1::DaemonConfig config;
  config.add_tenants()->set_name("lab");
  config.mutable_tenants(0)->mutable_quota()->set_stored_bytes("1000");
  tenants_ = Tenants::FromConfig(config).value();
  v1::UploadHeader header;
  header.set_filename("a.jsonl");
  const auto first = api_->UploadFile(tenant_, header).value();
  ASSERT_TRUE(first->Append(std::string(1000, ' ')).ok());
  const auto second = api_->UploadFile(tenant_, header).value();
  EXPECT_EQ(ReasonOf(second->Append("x")), "QUOTA_EXCEEDED");
  EXPECT_EQ(ReasonOf(second->Finish().status()), "QUOTA_EXCEEDED");  // It has ended.
  const absl::Status refused = Call(&Api::CreateJob, tenant_, Request("")).status();
  EXPECT_EQ(ReasonOf(refused), "QUOTA_EXCEEDED");
  EXPECT_THAT(refused.message(), HasSubstr("quota.stored_bytes"));
  v1::UploadHeader others;
  others.set_filename("b.jsonl");
  EXPECT_TRUE(api_->UploadFile(root_, others).value()->Append(std::string(2000, ' ')).ok());
}

// Users of the machine call as often as those of a network, and the daemon's own as he likes.
TEST_F(ResourcesTest, UsersOfTheSocketHaveARate) {
  constexpr int kMany = 10'000;
  Callers callers(*tokens_, tenants_, sessions_);
  absl::Status refused;  // Another call may come late enough to be let in.
  const auto calls_of = [&](const Principal& who, Callers& asked) {
    for (int calls = 0; calls < kMany; ++calls)
      if (refused = asked.OfUser(who).status(); !refused.ok()) return calls;
    return kMany;
  };
  EXPECT_GE(calls_of({.uid = 1234}, callers), 200);
  EXPECT_EQ(ReasonOf(refused), "RATE_LIMITED");
  EXPECT_THAT(refused.message(), HasSubstr("uid:1234"));
  EXPECT_TRUE(callers.OfUser({.uid = 1235}).ok());
  EXPECT_EQ(calls_of(root_, callers), kMany);
  v1::DaemonConfig config;
  config.add_tenants()->set_name("blue");
  tenants_ = Tenants::FromConfig(config).value();
  EXPECT_GE(calls_of(root_, callers), 2000);
  EXPECT_EQ(ReasonOf(refused), "RATE_LIMITED");
}

}  // namespace
}  // namespace snug::server
