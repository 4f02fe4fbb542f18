#include "server/node/descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <vector>

#include "server/node/connection_caps.h"

namespace snug::server {
namespace {

std::vector<int> TakeAll() {
  std::vector<int> taken;
  for (int fd = 0; (fd = open("/dev/null", O_RDONLY)) >= 0;) taken.push_back(fd);
  return taken;
}

// Somebody has connected to it, and stays.
int ListenerWithGuest() {
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0), guest = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un any = {.sun_family = AF_UNIX, .sun_path = {}};
  socklen_t size = sizeof any.sun_family;  // The kernel makes up a name.
  const auto address = reinterpret_cast<sockaddr*>(&any);
  EXPECT_EQ(bind(listener, address, size), 0);
  EXPECT_EQ(listen(listener, 1), 0);
  size = sizeof any;
  EXPECT_EQ(getsockname(listener, address, &size), 0);
  EXPECT_EQ(connect(guest, address, size), 0);
  return listener;
}

// An accept loop calls it again at once: poll says that there is somebody.
void ExpectAcceptToPause(int listener) {
  const auto begin = std::chrono::steady_clock::now();
  for (int call = 0; call < 3; ++call) EXPECT_EQ(AcceptOrPause(listener, 0), -1);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(150));
}

// F-75: the limit is the process's, so one test has it all.
TEST(DescriptorsTest, AReserveIsLeftWhenEverythingElseIsTaken) {
  const rlimit small = {.rlim_cur = 100, .rlim_max = 100};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &small), 0);
  EXPECT_EQ(ReserveDescriptors(), 100);
  const int listener = ListenerWithGuest();
  const std::vector<int> taken = TakeAll();
  EXPECT_LT(taken.back(), 75);
  EXPECT_TRUE(IsSpareDescriptor(taken.back()));
  EXPECT_EQ(open("/dev/null", O_RDONLY), -1);
  for (int round = 0; round < 3; ++round) {
    const DescriptorLoan loan;
    const std::vector<int> lent = TakeAll();
    EXPECT_EQ(lent.size(), 8u);
    EXPECT_FALSE(IsSpareDescriptor(lent.front()));  // What a connection got now is given back.
    for (int fd : lent) close(fd);
  }
  EXPECT_EQ(open("/dev/null", O_RDONLY), -1);  // Each loan was paid back.
  ExpectAcceptToPause(listener);
  for (int fd : taken) close(fd);
  EXPECT_GE(AcceptOrPause(listener, 0), 0);  // Whom nobody could take in has waited.
}

class Pair {
 public:
  Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0); }
  ~Pair() {
    close(ends_[0]);
    close(ends_[1]);
  }
  int end() const { return ends_[0]; }

 private:
  int ends_[2];
};

// One user may not take all of them, and what has gone makes room, though its number is taken
// again by another.
TEST(ConnectionCapsTest, OneUserLeavesRoomAndTheGoneCountNoMore) {
  ConnectionCaps caps({.in_all = 4, .of_a_user = 3});
  std::vector<Pair> there(2);
  for (const Pair& pair : there) EXPECT_TRUE(caps.Admit(pair.end()));
  int number = -1;
  {
    const Pair third;
    number = third.end();
    EXPECT_TRUE(caps.Admit(third.end()));
    EXPECT_FALSE(caps.Admit(Pair().end()));
  }
  const Pair another;
  EXPECT_EQ(another.end(), number);
  EXPECT_TRUE(caps.Admit(another.end()));
  EXPECT_FALSE(caps.Admit(Pair().end()));
}

TEST(ConnectionCapsTest, WhatIsNoSocketIsNotAdmitted) {
  ConnectionCaps caps;
  EXPECT_FALSE(caps.Admit(STDIN_FILENO));
}

}  // namespace
}  // namespace snug::server
