// The table of who may call what, against the service's own list of methods; and who is at the
// other end of a connection.
#include "server/api/authorise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "server/api/audit.h"
#include "server/api/callers.h"
#include "server/artifact/job_origins.h"
#include "server/grpc/peers.h"
#include "server/job/errors.h"
#include "server/job/job_key.h"
#include "snug/v1/service.pb.h"
#include "tests/server/testing/test_folder.h"

namespace snug::server {
namespace {

constexpr const char* kAboutOneJob[] = {
    "GetJob",    "WatchJob",        "CancelJob",  "GetJobLogs", "DownloadJob",
    "UpdateJob", "RerunJob",        "ExtendJob",  "DeleteJob",  "PauseJob",
    "ResumeJob", "ListCheckpoints", "SqueezeJob", "RelaxJob",   "ListArtifacts"};

class AuthoriseTest : public testing::Test {
 protected:
  AuthoriseTest() {
    for (const char* id : {"his-1", "other-1", "other-2"}) {
      JobRecord record;
      record.order = ++order_;
      record.job.set_id(id);
      record.job.set_owner(std::string(id) == "his-1" ? "uid:1000" : "uid:1001");
      index_.Put(record);
    }
  }
  absl::StatusOr<std::string> Ask(const Principal& who, const char* method,
                                  const std::string& job) const {
    return Authorise(who, method, job, index_);
  }

  JobIndex index_;
  int64_t order_ = 0;
  const Principal he_{.uid = 1000, .gid = 1000};
};

// A method without an entry would be one that nobody can call.
TEST_F(AuthoriseTest, EveryMethodOfTheServiceIsInTheTable) {
  const auto* service =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName("snug.v1.FineTuning");
  ASSERT_NE(service, nullptr);
  ASSERT_GE(service->method_count(), 10);
  for (int i = 0; i < service->method_count(); ++i)
    EXPECT_TRUE(Ask(DaemonPrincipal(), service->method(i)->name().c_str(), "his-1").ok())
        << service->method(i)->name();
  EXPECT_TRUE(absl::IsPermissionDenied(Ask(DaemonPrincipal(), "DropTables", "his-1").status()));
}

TEST_F(AuthoriseTest, AnothersJobIsNoJob) {
  for (const char* method : kAboutOneJob) {
    EXPECT_EQ(Ask(he_, method, "his").value(), "his-1") << method;
    for (const char* foreign : {"other-1", "other-2", "other-", "other"}) {
      const absl::Status refused = Ask(he_, method, foreign).status();
      EXPECT_EQ(refused, JobNotFound(foreign)) << method;  // The words for any unknown id.
    }
    EXPECT_EQ(Ask(DaemonPrincipal(), method, "other-2").value(), "other-2") << method;
  }
}

TEST_F(AuthoriseTest, NobodyKnownMayCallNothing) {
  for (const char* method : {"CreateJob", "ListJobs", "GetJob", "GetServerInfo"})
    EXPECT_TRUE(absl::IsUnauthenticated(Authorise(std::nullopt, method, "his-1", index_).status()));
}

TEST_F(AuthoriseTest, ListsAndModelsAreHisOwn) {
  EXPECT_EQ(index_.List({.owner = he_.name()}).value().jobs.size(), 1u);
  EXPECT_EQ(index_.List({}).value().jobs.size(), 3u);
  const JobOrigins origins(index_, "/nowhere", he_);
  EXPECT_EQ(origins.Whole({.job = "other-1"}).status(), JobNotFound("other-1"));
  EXPECT_EQ(origins.Model({.job = "other-1"}).status(), JobNotFound("other-1"));
  EXPECT_EQ(origins.Adapter({.job = "other-1"}, {}).status(), JobNotFound("other-1"));
}

// Every user's jobs are in it.
TEST_F(AuthoriseTest, TheWholeStoreIsForTheDaemonsOwnUser) {
  for (const char* method : {"BackupStore", "CheckStore", "DrainDevice", "UndrainDevice"}) {
    EXPECT_TRUE(absl::IsPermissionDenied(Ask(he_, method, "").status())) << method;
    EXPECT_TRUE(Ask(DaemonPrincipal(), method, "").ok()) << method;
  }
}

class RolesTest : public testing::Test {
 protected:
  RolesTest() {
    for (const char* owner : {"tenant:blue", "tenant:red", "uid:1000"}) {
      JobRecord record;
      record.order = ++order_;
      record.job.set_id(absl::StrCat("of-", order_));
      record.job.set_owner(owner);
      index_.Put(record);
    }
  }
  static Principal Blue(v1::Token::Role role) {
    return {.uid = kNoUser, .gid = kNoUser, .tenant = "blue", .role = role};
  }
  // OK, PERMISSION_DENIED or NOT_FOUND.
  absl::StatusCode Said(v1::Token::Role role, const char* method, const char* job) const {
    return Authorise(Blue(role), method, job, index_).status().code();
  }

  JobIndex index_;
  int64_t order_ = 0;
};

// F-58. A name is of one job alone; an id is of the caller's own tenant first.
TEST_F(RolesTest, OneIdOfTwoTenantsIsTwoJobs) {
  for (const char* tenant : {"default", "blue", "red"}) {
    JobRecord record;
    record.order = ++order_;
    record.job.set_id("tune");
    record.job.set_owner(absl::StrCat("tenant:", tenant));
    record.job.set_key(KeyFor(tenant, "tune"));
    index_.Put(record);
  }
  const auto found = [&](const Principal& who, const char* job) {
    const absl::StatusOr<std::string> key = Authorise(who, "GetJob", job, index_);
    return key.ok() ? *key : ReasonOf(key.status());
  };
  const Principal user = Blue(v1::Token::ROLE_USER);
  EXPECT_EQ(found(user, "tune"), "tune.blue");
  EXPECT_EQ(found(user, "tenants/blue/jobs/tune"), "tune.blue");
  EXPECT_EQ(found(user, "tune.blue"), "tune.blue");
  for (const char* foreign : {"tenants/red/jobs/tune", "tenants/default/jobs/tune", "tune.red"})
    EXPECT_EQ(found(user, foreign), "JOB_NOT_FOUND");
  EXPECT_EQ(found(DaemonPrincipal(), "tune"), "tune");
  Principal third = Blue(v1::Token::ROLE_OPERATOR);
  third.tenant = "ops";
  EXPECT_EQ(found(third, "tune"), "JOB_AMBIGUOUS");
  EXPECT_EQ(found(third, "tenants/red/jobs/tune"), "tune.red");
  EXPECT_EQ(found(third, "tenants/default/jobs/tune"), "tune");
  EXPECT_EQ(found(third, "tune.default"), "tune");
  EXPECT_EQ(found(third, "tune.re"), "JOB_NOT_FOUND");
}

constexpr const char* kBlues = "of-1";
constexpr const char* kReds = "of-2";
constexpr const char* kOfTheSocket = "of-3";

TEST_F(RolesTest, AUserHasHisTenantsJobsAndNoOthers) {
  for (const char* method : kAboutOneJob) {
    EXPECT_EQ(Said(v1::Token::ROLE_USER, method, kBlues), absl::StatusCode::kOk) << method;
    for (const char* foreign : {kReds, kOfTheSocket})
      EXPECT_EQ(Said(v1::Token::ROLE_USER, method, foreign), absl::StatusCode::kNotFound) << method;
  }
  for (const char* method : {"CreateJob", "PlanJob", "PreviewDataset", "ListJobs", "GetServerInfo"})
    EXPECT_EQ(Said(v1::Token::ROLE_USER, method, ""), absl::StatusCode::kOk) << method;
  EXPECT_EQ(index_.List({.owner = Blue(v1::Token::ROLE_USER).name()}).value().jobs.size(), 1u);
}

TEST_F(RolesTest, AViewerSeesHisTenantsJobsAndChangesNothing) {
  int may = 0;
  for (const char* method : kAboutOneJob) {
    const bool changes = ChangesSomething(method);
    may += changes ? 0 : 1;
    EXPECT_EQ(Said(v1::Token::ROLE_VIEWER, method, kBlues),
              changes ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kOk)
        << method;
    // Whether there is such a job he does not hear either.
    EXPECT_EQ(Said(v1::Token::ROLE_VIEWER, method, kReds),
              changes ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kNotFound)
        << method;
  }
  EXPECT_EQ(may, 6);
  for (const char* method : {"CreateJob", "PlanJob", "PreviewDataset"})
    EXPECT_EQ(Said(v1::Token::ROLE_VIEWER, method, ""), absl::StatusCode::kPermissionDenied)
        << method;
}

// What a network may ask for ends before tokens.
TEST_F(RolesTest, AnOperatorHasAllJobsAndTheStoreAndGivesOutNoTokens) {
  for (const char* job : {kBlues, kReds, kOfTheSocket})
    for (const char* method : kAboutOneJob)
      EXPECT_EQ(Said(v1::Token::ROLE_OPERATOR, method, job), absl::StatusCode::kOk) << method;
  for (const char* method : {"BackupStore", "CheckStore", "DrainDevice", "UndrainDevice"}) {
    EXPECT_EQ(Said(v1::Token::ROLE_OPERATOR, method, ""), absl::StatusCode::kOk) << method;
    EXPECT_EQ(Said(v1::Token::ROLE_USER, method, ""), absl::StatusCode::kPermissionDenied)
        << method;
  }
  for (const char* method : {"CreateToken", "ListTokens", "RevokeToken"}) {
    EXPECT_EQ(Said(v1::Token::ROLE_OPERATOR, method, ""), absl::StatusCode::kPermissionDenied)
        << method;
    EXPECT_TRUE(Authorise(DaemonPrincipal(), method, "", index_).ok()) << method;
  }
}

TEST(RateLimitTest, ABurstThenSoManyASecondForEachName) {
  RateLimit limit({.burst = 5, .per_second = 10});
  const auto taken = [&](const char* name, absl::Duration now) {
    int calls = 0;
    while (calls < 1000 && limit.Take(name, now)) ++calls;
    return calls;
  };
  EXPECT_EQ(taken("a", absl::Seconds(100)), 5);
  EXPECT_EQ(taken("b", absl::Seconds(100)), 5);
  EXPECT_EQ(taken("a", absl::Seconds(100) + absl::Milliseconds(350)), 3);
  EXPECT_EQ(taken("a", absl::Seconds(1000)), 5);
}

TEST(AuditLogTest, ALineForEachCallAndAnOlderFileAtTheLimit) {
  const TestFolder folder("audit");
  const std::string path = folder.path() + "/audit.log";
  const auto text = [](const std::string& file) {
    std::ifstream in(file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const AuditedCall call{.who = {.tenant = "blue", .credential = "token:1a"},
                         .method = "CancelJob",
                         .resource = "jobs/x\"\n"};
  {
    AuditLog log(path, /*file_bytes=*/400);
    log.Write(call, JobNotFound("x"), absl::UnixEpoch());
    EXPECT_EQ(text(path),
              "{\"time\":\"1970-01-01T00:00:00.000000Z\",\"principal\":\"tenant:blue\","
              "\"method\":\"CancelJob\",\"resource\":\"jobs/x\\\"\\n\",\"status\":\"NOT_FOUND\","
              "\"credential\":\"token:1a\",\"reason\":\"JOB_NOT_FOUND\"}\n");
  }
  AuditLog log(path, /*file_bytes=*/400);  // Goes on where the last one ended.
  log.Write(call, absl::OkStatus(), absl::UnixEpoch());
  const std::string full = text(path);
  EXPECT_THAT(full, testing::HasSubstr("NOT_FOUND"));
  EXPECT_THAT(full, testing::HasSubstr("\"status\":\"OK\""));
  log.Write({.who = DaemonPrincipal(), .method = "DeleteJob"}, absl::OkStatus(), absl::Now());
  EXPECT_EQ(text(path + ".1"), full);
  EXPECT_THAT(text(path), testing::HasSubstr("\"method\":\"DeleteJob\""));
}

TEST(PeersTest, AConnectionIsItsUsers) {
  Peers peers;
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const int number = peers.Adopt(ends[0]);
  ASSERT_GE(number, 0);
  const std::optional<Principal> who = peers.Find(absl::StrCat("fd:", number));
  ASSERT_TRUE(who.has_value());
  EXPECT_EQ(who->uid, geteuid());
  EXPECT_TRUE(who->trusted);
  EXPECT_FALSE(peers.Find("unix:").has_value());
  EXPECT_FALSE(peers.Find("fd:1").has_value());
  EXPECT_FALSE(peers.Find("ipv4:127.0.0.1:80").has_value());
  close(number);
  close(ends[1]);
  // The number of one that has closed is not the next one's.
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const int next = peers.Adopt(ends[0]);
  EXPECT_NE(next, number);
  close(next);
  close(ends[1]);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  EXPECT_EQ(peers.Adopt(pipe_ends[0]), -1);  // No socket: nobody says whose it is.
  close(pipe_ends[1]);
}

}  // namespace
}  // namespace snug::server
