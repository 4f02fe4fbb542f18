#include "server/node/unix_socket.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/time/clock.h"
#include "tests/server/testing/test_folder.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

class UnixSocketTest : public testing::Test {
 protected:
  const TestFolder folder_{"us"};
  const std::string dir_ = folder_.path();
};

TEST_F(UnixSocketTest, HasTheModeThatWasAskedFor) {
  const int fd = ListenUnix(dir_ + "/s", 0660).value();
  struct stat status {};
  ASSERT_EQ(stat((dir_ + "/s").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0660u);
  close(fd);
}

// In /tmp anybody may have made it first.
TEST_F(UnixSocketTest, AFolderThatOthersCanWriteToIsNotPrivate) {
  fs::permissions(dir_, fs::perms::owner_all);
  EXPECT_TRUE(CheckPrivateFolder(dir_).ok());
  fs::permissions(dir_, fs::perms::owner_all | fs::perms::others_write);
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckPrivateFolder(dir_)));
  fs::permissions(dir_, fs::perms::owner_all);
  if (geteuid() == 0) {  // Somebody else's, whatever its mode.
    ASSERT_EQ(chown(dir_.c_str(), 65534, 65534), 0);
    EXPECT_TRUE(absl::IsFailedPrecondition(CheckPrivateFolder(dir_)));
    ASSERT_EQ(chown(dir_.c_str(), 0, 0), 0);
  }
  fs::create_directory_symlink(dir_, dir_ + "/link");
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckPrivateFolder(dir_ + "/link")));
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckPrivateFolder("/tmp")));
}

TEST_F(UnixSocketTest, StaleSocketOfOurOwnIsReplaced) {
  close(ListenUnix(dir_ + "/s", 0600).value());
  const auto again = ListenUnix(dir_ + "/s", 0600);
  ASSERT_TRUE(again.ok()) << again.status();
  close(*again);
}

TEST_F(UnixSocketTest, SocketOnWhichSomebodyAnswersIsLeftAlone) {
  const int fd = ListenUnix(dir_ + "/s", 0600).value();
  EXPECT_TRUE(absl::IsFailedPrecondition(ListenUnix(dir_ + "/s", 0600).status()));
  close(fd);
}

// A child of a daemon that was killed, before its exec.
TEST_F(UnixSocketTest, OneThatSoonStopsAnsweringIsWaitedFor) {
  const int fd = ListenUnix(dir_ + "/s", 0600).value();
  std::thread dying([fd] {
    absl::SleepFor(absl::Milliseconds(200));
    close(fd);
  });
  const auto again = ListenUnix(dir_ + "/s", 0600);
  dying.join();
  ASSERT_TRUE(again.ok()) << again.status();
  close(*again);
}

TEST_F(UnixSocketTest, FilesAndLinksAreLeftAlone) {
  std::ofstream(dir_ + "/file") << "precious";
  fs::create_symlink(dir_ + "/elsewhere", dir_ + "/link");
  EXPECT_FALSE(ListenUnix(dir_ + "/file", 0600).ok());
  EXPECT_FALSE(ListenUnix(dir_ + "/link", 0600).ok());
  EXPECT_EQ(fs::file_size(dir_ + "/file"), 8u);
  EXPECT_TRUE(fs::is_symlink(dir_ + "/link"));
}

TEST_F(UnixSocketTest, PathThatNoAddressHoldsIsRefused) {
  const auto status = ListenUnix(dir_ + "/" + std::string(120, 'x'), 0600).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
}

}  // namespace
}  // namespace snug::server
