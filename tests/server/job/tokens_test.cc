// Tokens: what is kept of them, whom they let in, and for how long. And the schema that they came
// with.
#include "server/job/tokens.h"

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "server/job/schema.h"
#include "tests/server/job/store_fixture.h"

namespace snug::server {
namespace {

constexpr int64_t kNow = 1'800'000'000'000'000;
constexpr int64_t kSecond = 1'000'000;
constexpr int64_t kDay = 24 * 3600 * kSecond;

class TokensTest : public JobStoreTest {
 protected:
  TokensTest() : store_(Open().value()), tokens_(Tokens::Load(*store_).value()) {}

  v1::CreateTokenResponse Make(int64_t valid_seconds = 0) {
    v1::CreateTokenRequest request;
    request.set_tenant("blue");
    request.set_role(v1::Token::ROLE_VIEWER);
    request.set_valid_seconds(valid_seconds);
    return tokens_->Create(request, kNow).value();
  }
  void Restart() {
    tokens_.reset();
    store_.reset();
    store_ = Open().value();
    tokens_ = Tokens::Load(*store_).value();
  }
  std::string ReasonToday(const std::string& secret) {
    return ReasonOf(tokens_->Check(secret, kNow + kSecond).status());
  }

  std::unique_ptr<JobStore> store_;
  std::unique_ptr<Tokens> tokens_;
};

TEST_F(TokensTest, ATokenLetsItsOwnerInAlsoAfterARestart) {
  const v1::CreateTokenResponse made = Make();
  EXPECT_THAT(made.secret(), testing::MatchesRegex("snug_[0-9a-f]{12}_[0-9a-f]{64}"));
  EXPECT_NE(made.secret(), Make().secret());
  Restart();
  const TokenRecord token = tokens_->Check(made.secret(), kNow).value();
  EXPECT_EQ(token.id, made.token().id());
  EXPECT_EQ(token.tenant, "blue");
  EXPECT_EQ(token.role, v1::Token::ROLE_VIEWER);
  EXPECT_EQ(tokens_->List().size(), 2u);
}

// Its hash is there, and the token itself in no file.
TEST_F(TokensTest, TheTokenItselfIsNotKept) {
  const std::string secret = Make().secret();
  const std::string bits = secret.substr(secret.rfind('_') + 1);
  tokens_.reset();
  store_.reset();
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(dir_)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    EXPECT_EQ(bytes.find(bits), std::string::npos) << entry.path();
    files += bytes.find("blue") == std::string::npos ? 0 : 1;
  }
  EXPECT_GE(files, 1);  // Where the rest of it is.
}

TEST_F(TokensTest, WhatIsNoTokenOfOursLetsNobodyIn) {
  const std::string secret = Make().secret();
  std::string other = secret;
  other.back() = other.back() == '0' ? '1' : '0';
  std::string of_another = secret;
  of_another[6] = of_another[6] == '0' ? '1' : '0';
  for (const std::string& bad : {std::string(), std::string("snug__"), secret + "0", other,
                                 of_another, secret.substr(1), std::string(70, '_')}) {
    EXPECT_EQ(ReasonToday(bad), "BAD_TOKEN") << bad;
    EXPECT_EQ(tokens_->Check(bad, kNow).status().message(),
              tokens_->Check("", kNow).status().message());
  }
  EXPECT_TRUE(tokens_->Check(secret, kNow).ok());
}

TEST_F(TokensTest, ItEndsAtItsTimeOrWhenItIsRevoked) {
  const std::string brief = Make(60).secret();
  EXPECT_TRUE(tokens_->Check(brief, kNow + 59 * kSecond).ok());
  EXPECT_EQ(ReasonOf(tokens_->Check(brief, kNow + 60 * kSecond).status()), "TOKEN_EXPIRED");
  const v1::CreateTokenResponse lasting = Make();
  EXPECT_TRUE(tokens_->Check(lasting.secret(), kNow + 90 * kDay - 1).ok());
  EXPECT_FALSE(tokens_->Check(lasting.secret(), kNow + 90 * kDay).ok());
  const v1::Token revoked = tokens_->Revoke(lasting.token().id(), kNow).value();
  EXPECT_TRUE(revoked.has_revoke_time());
  EXPECT_EQ(ReasonToday(lasting.secret()), "TOKEN_REVOKED");
  Restart();
  EXPECT_EQ(ReasonToday(lasting.secret()), "TOKEN_REVOKED");
  EXPECT_EQ(tokens_->Revoke(lasting.token().id(), kNow + kDay).value().revoke_time().seconds(),
            revoked.revoke_time().seconds());
  EXPECT_TRUE(absl::IsNotFound(tokens_->Revoke("000000000000", kNow).status()));
}

TEST_F(TokensTest, ARequestSaysForWhomAndForHowLong) {
  v1::CreateTokenRequest request;
  request.set_valid_seconds(90 * 24 * 3600 + 1);
  const absl::Status refused = tokens_->Create(request, kNow).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_EQ(FieldsOf(refused).size(), 3u);  // tenant, role, valid_seconds
}

// The store of a daemon of schema 2, as it was dumped then: a finished, a cancelled and two paused
// jobs, one of them with a label.
TEST_F(JobStoreTest, StoreOfSchemaTwoIsTakenAlong) {
  ASSERT_NO_FATAL_FAILURE(MakeFromDump("schema_2.sql"));
  {
    auto store = Open().value();
    EXPECT_EQ(store->Load().value().jobs.size(), 2u);
    EXPECT_EQ(store->SearchJob("steps-3", DaemonPrincipal()).value().state(), Job::STATE_SUCCEEDED);
    EXPECT_EQ(store->SearchJob("steps-4", DaemonPrincipal()).value().job.labels().at("team"),
              "blue");
    EXPECT_EQ(Tokens::Load(*store).value()->List().size(), 0u);
  }
  auto now = Database::Open(dir_ + "/snug.db").value();
  EXPECT_EQ(now->QueryInt("PRAGMA user_version").value(), kSchemaVersion);
  EXPECT_EQ(now->QueryInt("SELECT count(*) FROM jobs WHERE tenant='default'").value(), 4);
  auto before =
      Database::Open(absl::StrCat(dir_, "/snug.db.before-schema-", kSchemaVersion)).value();
  EXPECT_EQ(before->QueryInt("PRAGMA user_version").value(), 2);
  EXPECT_EQ(before->QueryInt("SELECT count(*) FROM jobs").value(), 4);
  EXPECT_FALSE(before->QueryInt("SELECT count(*) FROM tokens").ok());
}

// Where the next version's tables may look for it.
TEST_F(JobStoreTest, AJobsRowHasItsTenant) {
  auto store = Open().value();
  JobRecord job = AJob("a-1", 1);
  job.job.set_owner("tenant:blue");
  const JobRecord other = AJob("b-1", 2);
  ASSERT_TRUE(store->Commit({.job = &job}).ok());
  ASSERT_TRUE(store->Commit({.job = &other}).ok());
  const auto count = [&](const char* tenant) {
    return store
        ->Ask<int64_t>([&](Database& database) {
          return database.QueryInt("SELECT count(*) FROM jobs WHERE tenant=?", {tenant});
        })
        .value();
  };
  EXPECT_EQ(count("blue"), 1);
  EXPECT_EQ(count("default"), 1);
}

}  // namespace
}  // namespace snug::server
