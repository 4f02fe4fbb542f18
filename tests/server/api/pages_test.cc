// Pages of lists, their tokens, and masks of reads.
#include "server/api/pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/api/job_pages.h"
#include "server/job/errors.h"
#include "snug/v1/files.pb.h"
#include "snug/v1/service.pb.h"

namespace snug::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Listed<v1::File>> Files(int count, size_t name_bytes = 1) {
  std::vector<Listed<v1::File>> list;
  for (int i = 0; i < count; ++i) {
    v1::File file;
    file.set_id(absl::StrCat(i));
    file.set_filename(std::string(name_bytes, 'x'));
    list.push_back({SortedText(i), file});
  }
  return list;
}

class PagesTest : public testing::Test {
 protected:
  absl::StatusOr<Page<v1::File>> Ask(std::vector<Listed<v1::File>> list) {
    absl::StatusOr<Page<v1::File>> page = PageOf(request_, std::move(list), tokens_);
    if (page.ok()) request_.set_page_token(page->next_token);
    return page;
  }
  static std::vector<std::string> Ids(const Page<v1::File>& page) {
    std::vector<std::string> ids;
    for (const v1::File& file : page.messages) ids.push_back(file.id());
    return ids;
  }
  std::string Reason(const absl::Status& status) { return ReasonOf(status); }

  const PageTokens tokens_;
  v1::ListFilesRequest request_;
};

TEST_F(PagesTest, APageAfterTheOther) {
  request_.set_page_size(2);
  EXPECT_THAT(Ids(*Ask(Files(5))), ElementsAre("0", "1"));
  EXPECT_THAT(Ids(*Ask(Files(5))), ElementsAre("2", "3"));
  EXPECT_THAT(Ids(*Ask(Files(5))), ElementsAre("4"));
  EXPECT_EQ(request_.page_token(), "");
  EXPECT_THAT(Ids(*Ask({})), ElementsAre());
  EXPECT_EQ(request_.page_token(), "");
}

// None is left out, and none comes twice, where things go and come meanwhile.
TEST_F(PagesTest, AListMayChangeBetweenItsPages) {
  request_.set_page_size(2);
  EXPECT_THAT(Ids(*Ask(Files(5))), ElementsAre("0", "1"));
  auto fewer = Files(5);
  fewer.erase(fewer.begin(), fewer.begin() + 2);  // Those of the first page.
  EXPECT_THAT(Ids(*Ask(fewer)), ElementsAre("2", "3"));
  auto more = Files(6);
  EXPECT_THAT(Ids(*Ask(more)), ElementsAre("4", "5"));
  EXPECT_EQ(request_.page_token(), "");
}

TEST_F(PagesTest, APageIsOfAtMostThreeMegabytes) {
  constexpr size_t kBytes = 100'000;
  request_.set_page_size(1000);
  const auto list = Files(100, kBytes);
  size_t pages = 0, files = 0;
  do {
    const Page<v1::File> page = *Ask(list);
    v1::ListFilesResponse response;
    for (const v1::File& file : page.messages) *response.add_files() = file;
    EXPECT_LE(response.ByteSizeLong(), size_t{3 << 20} + 1024);
    ++pages;
    files += page.messages.size();
  } while (!request_.page_token().empty());
  EXPECT_EQ(files, 100u);
  EXPECT_EQ(pages, 4u);
  // One that is larger than a page is a page.
  EXPECT_EQ(Ask(Files(2, 4 << 20))->messages.size(), 1u);
  EXPECT_NE(request_.page_token(), "");
}

TEST_F(PagesTest, ATokenIsOfItsListAlone) {
  request_.set_page_size(1);
  ASSERT_TRUE(Ask(Files(3)).ok());
  const v1::ListFilesRequest second = request_;
  request_.set_page_size(2);  // Of how much, and what of it, may change.
  request_.mutable_read_mask()->add_paths("id");
  EXPECT_TRUE(Ask(Files(3)).ok());
  request_ = second;
  request_.set_parent("tenants/other");
  EXPECT_EQ(Reason(Ask(Files(3)).status()), "BAD_PAGE_TOKEN");
  request_ = second;
  request_.set_page_token(second.page_token() + "A");
  EXPECT_EQ(Reason(Ask(Files(3)).status()), "BAD_PAGE_TOKEN");
  v1::ListTokensRequest tokens;  // The same fields, of another list.
  tokens.set_page_token(second.page_token());
  EXPECT_EQ(Reason(PageOf(tokens, std::vector<Listed<v1::Token>>(), tokens_).status()),
            "BAD_PAGE_TOKEN");
  EXPECT_EQ(Reason(PageOf(second, Files(3), PageTokens()).status()), "BAD_PAGE_TOKEN");
}

TEST_F(PagesTest, SizesAreChecked) {
  request_.set_page_size(-1);
  const absl::Status status = Ask(Files(1)).status();
  EXPECT_EQ(FieldsOf(status).at(0).first, "page_size");
  request_.set_page_size(2'000'000'000);
  EXPECT_EQ(Ask(Files(1200))->messages.size(), 1000u);
  request_.Clear();
  EXPECT_EQ(Ask(Files(1200))->messages.size(), 50u);
}

TEST_F(PagesTest, OnlyWhatIsOnThePageIsFilled) {
  request_.set_page_size(3);
  int filled = 0;
  const auto fill = [&](v1::File& file) {
    ++filled;
    file.set_sha256("of " + file.id());
    return absl::OkStatus();
  };
  const Page<v1::File> page = PageOf(request_, Files(50), tokens_, fill).value();
  EXPECT_EQ(filled, 3);
  EXPECT_EQ(page.messages[2].sha256(), "of 2");
}

TEST_F(PagesTest, AMaskLeavesWhatItNames) {
  request_.mutable_read_mask()->add_paths("filename");
  const v1::File file = Ask(Files(1))->messages.at(0);
  EXPECT_EQ(file.filename(), "x");
  EXPECT_EQ(file.id(), "");
  request_.mutable_read_mask()->add_paths("*");
  EXPECT_EQ(Ask(Files(1))->messages.at(0).id(), "0");
  request_.mutable_read_mask()->add_paths("colour");
  const absl::Status status = Ask(Files(1)).status();
  EXPECT_EQ(FieldsOf(status).at(0).first, "read_mask");
  EXPECT_THAT(FieldsOf(status).at(0).second, HasSubstr("\"colour\" is no field of a File"));
}

// Of jobs as large as they may be, and all of each asked for.
TEST(JobPagesTest, APageOfLargeJobsIsOfAtMostThreeMegabytes) {
  JobIndex index;
  for (int i = 1; i <= 40; ++i) {
    JobRecord record;
    record.order = i;
    record.job.set_id(absl::StrCat("job-", i));
    record.job.set_state(v1::Job::STATE_QUEUED);
    record.job.mutable_spec()->set_chat_template(std::string(250'000, 'x'));
    index.Put(record);
  }
  const PageTokens tokens;
  v1::ListJobsRequest request;
  request.set_page_size(1000);
  request.mutable_read_mask()->add_paths("*");
  int jobs = 0, pages = 0;
  do {
    const v1::ListJobsResponse page = ListPage(request, DaemonPrincipal(), tokens, index).value();
    EXPECT_LE(page.ByteSizeLong(), size_t{3 << 20} + 1024);
    jobs += page.jobs_size();
    ++pages;
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(jobs, 40);
  EXPECT_EQ(pages, 4);
  request.clear_read_mask();
  EXPECT_EQ(ListPage(request, DaemonPrincipal(), tokens, index).value().jobs_size(), 40);
}

// From a moment on, and until another, which is not among them.
TEST(JobPagesTest, AListIsOfAStretchOfTime) {
  JobIndex index;
  for (int second = 1; second <= 5; ++second) {
    JobRecord record;
    record.order = second;
    record.job.set_id(absl::StrCat("job-", second));
    record.job.set_state(v1::Job::STATE_QUEUED);
    record.job.mutable_create_time()->set_seconds(second);
    index.Put(record);
  }
  v1::ListJobsRequest request;
  request.mutable_created_from()->set_seconds(2);
  request.mutable_created_until()->set_seconds(4);
  std::vector<std::string> ids;
  const PageTokens tokens;
  const v1::ListJobsResponse page = ListPage(request, DaemonPrincipal(), tokens, index).value();
  for (const v1::Job& job : page.jobs()) ids.push_back(job.id());
  EXPECT_EQ(ids, (std::vector<std::string>{"job-3", "job-2"}));
}

TEST(MasksTest, WhatIsWantedOfAField) {
  google::protobuf::FieldMask mask;
  EXPECT_TRUE(Wants(mask, "spec"));
  mask.add_paths("state");
  EXPECT_FALSE(Wants(mask, "spec"));
  mask.add_paths("spectrum");
  EXPECT_FALSE(Wants(mask, "spec"));
  mask.add_paths("spec.model");
  EXPECT_TRUE(Wants(mask, "spec"));
  EXPECT_FALSE(CheckReadMask(mask, *v1::Job::descriptor()).ok());
  mask.set_paths(1, "progress");
  EXPECT_TRUE(CheckReadMask(mask, *v1::Job::descriptor()).ok());
  v1::Job job;
  job.set_id("a");
  job.mutable_spec()->set_model("m");
  job.mutable_spec()->set_dataset("d");
  const v1::Job shown = Trimmed(job, mask);
  EXPECT_EQ(shown.spec().model(), "m");
  EXPECT_EQ(shown.spec().dataset() + shown.id(), "");
}

TEST(PlacesTest, NumbersSortAsTheyAre) {
  const int64_t numbers[] = {INT64_MIN, -5, -1, 0, 1, 9, 10, 1'700'000'000'000'000, INT64_MAX};
  for (size_t i = 1; i < std::size(numbers); ++i) {
    EXPECT_LT(SortedText(numbers[i - 1]), SortedText(numbers[i]));
    EXPECT_GT(SortedBackwards(numbers[i - 1]), SortedBackwards(numbers[i]));
  }
}

}  // namespace
}  // namespace snug::server
