#include "server/job/transient.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "server/job/errors.h"

namespace snug::server {
namespace {

TEST(TransientTest, ErrorsOfSystemCallsThatPass) {
  for (int error : {ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM, EAGAIN, EINTR, ESTALE})
    EXPECT_TRUE(IsTransient(absl::ErrnoToStatus(error, "x"))) << error;
  for (int error : {ENOENT, EACCES, EINVAL, EIO, EISDIR, ENAMETOOLONG})
    EXPECT_FALSE(IsTransient(absl::ErrnoToStatus(error, "x"))) << error;
  EXPECT_FALSE(IsTransient(absl::OkStatus()));
}

TEST(TransientTest, ReasonsThatPass) {
  EXPECT_TRUE(IsTransient(StoreFull()));
  EXPECT_TRUE(IsTransientReason("DISK_FULL"));
  EXPECT_FALSE(IsTransientReason("NON_FINITE"));
}

// One field that is wrong for good is enough.
TEST(TransientTest, AnInvalidRequestPassesIfAllOfItDoes) {
  const Violation away{"spec.model", "cannot open", "BAD_MODEL", /*may_pass=*/true};
  const Violation wrong{"spec.lora.r", "is 0", "BAD_FIELD"};
  EXPECT_TRUE(IsTransient(InvalidRequest({away})));
  EXPECT_FALSE(IsTransient(InvalidRequest({away, wrong})));
}

TEST(TransientTest, AFileMayComeBackAndAJobThatDoesNotExistMayNot) {
  EXPECT_TRUE(MayComeBack(absl::ErrnoToStatus(ENOENT, "cannot open /m")));
  EXPECT_FALSE(MayComeBack(JobNotFound("j")));
  EXPECT_FALSE(MayComeBack(absl::DataLossError("torn")));
}

TEST(TransientTest, HoldsGrowToAMinute) {
  EXPECT_EQ(HoldFor(0), absl::Seconds(5));
  EXPECT_EQ(HoldFor(1), absl::Seconds(10));
  EXPECT_EQ(HoldFor(4), absl::Minutes(1));
  EXPECT_EQ(HoldFor(1'000'000), absl::Minutes(1));
}

}  // namespace
}  // namespace snug::server
