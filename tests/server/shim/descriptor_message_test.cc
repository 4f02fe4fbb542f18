// Open files that go over a socket beside a message's bytes.
#include "server/shim/descriptor_message.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

namespace snug::shim {
namespace {

int OpenFiles() {
  DIR* folder = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

class DescriptorMessageTest : public testing::Test {
 protected:
  DescriptorMessageTest() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_), 0);
    EXPECT_EQ(pipe2(pipe_, O_CLOEXEC), 0);
  }
  ~DescriptorMessageTest() override {
    for (const int fd : {ends_[0], ends_[1], pipe_[0], pipe_[1]}) close(fd);
  }
  ssize_t Receive(size_t size) {
    bytes_.resize(size);
    return ReceiveWithDescriptors(ends_[1], bytes_.data(), size, fds_);
  }

  int ends_[2], pipe_[2];
  std::string bytes_;
  std::vector<int> fds_ = {-7};  // What was there before does not stay.
};

TEST_F(DescriptorMessageTest, TheFileThatArrivesIsTheOneThatWasSent) {
  ASSERT_EQ(SendWithDescriptors(ends_[0], "abc", 3, {pipe_[1]}), 3);
  ASSERT_EQ(Receive(3), 3);
  EXPECT_EQ(bytes_, "abc");
  ASSERT_EQ(fds_.size(), 1u);
  EXPECT_NE(fcntl(fds_[0], F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(write(fds_[0], "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(read(pipe_[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  close(fds_[0]);
}

TEST_F(DescriptorMessageTest, NoneAndAsManyAsMayBe) {
  ASSERT_EQ(SendWithDescriptors(ends_[0], "a", 1, {}), 1);
  ASSERT_EQ(Receive(1), 1);
  EXPECT_TRUE(fds_.empty());
  ASSERT_EQ(
      SendWithDescriptors(ends_[0], "a", 1, std::vector<int>(kMaxDescriptorsAtOnce, pipe_[0])), 1);
  ASSERT_EQ(Receive(1), 1);
  EXPECT_EQ(fds_.size(), kMaxDescriptorsAtOnce);
  for (const int fd : fds_) close(fd);
  EXPECT_EQ(
      SendWithDescriptors(ends_[0], "a", 1, std::vector<int>(kMaxDescriptorsAtOnce + 1, pipe_[0])),
      -1);
  EXPECT_EQ(errno, EINVAL);
}

// Otherwise a stranger could fill this process's table of files with messages of the wrong length.
TEST_F(DescriptorMessageTest, NothingOfALongMessageStaysOpen) {
  const int before = OpenFiles();
  ASSERT_EQ(SendWithDescriptors(ends_[0], "abcd", 4, {pipe_[0], pipe_[1]}), 4);
  EXPECT_EQ(Receive(3), -1);
  EXPECT_EQ(errno, EMSGSIZE);
  EXPECT_TRUE(fds_.empty());
  EXPECT_EQ(OpenFiles(), before);
}

TEST_F(DescriptorMessageTest, AHangUpIsTheEndForOneAndAnErrorForTheOther) {
  ASSERT_EQ(SendWithDescriptors(ends_[1], "a", 1, {}), 1);
  shutdown(ends_[0], SHUT_RDWR);
  EXPECT_EQ(Receive(1), 0);
  EXPECT_TRUE(fds_.empty());
  EXPECT_EQ(SendWithDescriptors(ends_[1], "a", 1, {pipe_[0]}), -1);  // And no SIGPIPE.
  EXPECT_EQ(errno, EPIPE);
}

}  // namespace
}  // namespace snug::shim
