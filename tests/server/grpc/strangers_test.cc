// Connections of the network over which nobody was let in: how much may come over them.
#include "server/grpc/strangers.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace snug::server {
namespace {

constexpr StrangerLimits kLimits = {.burst_bytes = 10'000,
                                    .bytes_per_second = 1'000,
                                    .calls = {.burst = 10, .per_second = 2},
                                    .refusal = absl::Minutes(1)};
constexpr absl::Duration kStart = absl::Hours(1);

// Both ends of a TCP connection to 127.0.0.1 or ::1, from an address of this machine's own.
struct Connection {
  explicit Connection(const std::string& from = "127.0.0.1", int from_port = 0)
      : six(from == "::1") {
    const int family = six ? AF_INET6 : AF_INET;
    const int listener = socket(family, SOCK_STREAM, 0);
    sockaddr_storage address = AddressOf(six ? "::1" : "127.0.0.1");
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), Size()), 0);
    EXPECT_EQ(listen(listener, 1), 0);
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
    theirs = socket(family, SOCK_STREAM, 0);
    const int one = 1;
    setsockopt(theirs, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    sockaddr_storage own = AddressOf(from);
    if (!six) reinterpret_cast<sockaddr_in&>(own).sin_port = htons(from_port);
    EXPECT_EQ(bind(theirs, reinterpret_cast<sockaddr*>(&own), Size()), 0);
    EXPECT_EQ(connect(theirs, reinterpret_cast<sockaddr*>(&address), Size()), 0);
    ours = accept(listener, nullptr, nullptr);
    close(listener);
    size = sizeof own;
    getsockname(theirs, reinterpret_cast<sockaddr*>(&own), &size);
    port = ntohs(six ? reinterpret_cast<sockaddr_in6&>(own).sin6_port
                     : reinterpret_cast<sockaddr_in&>(own).sin_port);
    peer = six ? absl::StrCat("ipv6:%5B::1%5D:", port) : absl::StrCat("ipv4:", from, ":", port);
  }
  Connection(const Connection&) = delete;
  ~Connection() {
    if (ours >= 0) close(ours);
    close(theirs);
  }

  sockaddr_storage AddressOf(const std::string& text) const {
    sockaddr_storage address{};
    address.ss_family = six ? AF_INET6 : AF_INET;
    void* to = six ? static_cast<void*>(&reinterpret_cast<sockaddr_in6&>(address).sin6_addr)
                   : &reinterpret_cast<sockaddr_in&>(address).sin_addr;
    EXPECT_EQ(inet_pton(address.ss_family, text.c_str(), to), 1);
    return address;
  }
  socklen_t Size() const { return six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in); }

  // There when it returns.
  void Send(size_t bytes) {
    const std::string text(bytes, 'x');
    ASSERT_EQ(send(theirs, text.data(), bytes, 0), static_cast<ssize_t>(bytes));
    std::vector<char> room(bytes);
    ASSERT_EQ(recv(ours, room.data(), bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
  }
  // Its peer hears that it is at an end.
  bool IsOpen() const {
    pollfd heard = {theirs, POLLIN, 0};
    return poll(&heard, 1, 0) == 0;
  }

  const bool six;
  int ours = -1, theirs = -1, port = 0;
  std::string peer;
};

TEST(StrangersTest, TooMuchAtTwoLooksIsTheEnd) {
  Strangers strangers(kLimits);
  Connection loud, quiet;
  ASSERT_TRUE(strangers.Admit(loud.ours, kStart));
  ASSERT_TRUE(strangers.Admit(quiet.ours, kStart));
  EXPECT_TRUE(strangers.any());
  loud.Send(10'001);
  quiet.Send(9'000);
  strangers.Review(kStart);
  EXPECT_TRUE(loud.IsOpen());  // His first call may be on its way.
  strangers.Review(kStart);
  EXPECT_FALSE(loud.IsOpen());
  EXPECT_TRUE(quiet.IsOpen());
}

TEST(StrangersTest, ManyTogetherMayEachSendLittle) {
  StrangerLimits limits = kLimits;
  limits.bytes_of_all = 25'000;
  limits.burst_of_many = 5'000;
  Strangers strangers(limits);
  Connection first, second, third, quiet;
  for (const Connection* each : {&first, &second, &third, &quiet})
    ASSERT_TRUE(strangers.Admit(each->ours, kStart));
  quiet.Send(4'000);
  first.Send(9'000);
  second.Send(9'000);
  for (int look = 0; look < 3; ++look) strangers.Review(kStart);
  EXPECT_TRUE(first.IsOpen());
  third.Send(9'000);
  for (int look = 0; look < 2; ++look) strangers.Review(kStart);
  for (const Connection* each : {&first, &second, &third}) EXPECT_FALSE(each->IsOpen());
  EXPECT_TRUE(quiet.IsOpen());
}

TEST(StrangersTest, ALittleMayGoOnForEver) {
  Strangers strangers(kLimits);
  Connection probe;
  ASSERT_TRUE(strangers.Admit(probe.ours, kStart));
  for (int second = 1; second <= 60; ++second) {
    probe.Send(900);
    strangers.Review(kStart + absl::Seconds(second));
  }
  EXPECT_TRUE(probe.IsOpen());
}

TEST(StrangersTest, WhoIsLetInSendsWhatHeLikes) {
  for (const char* from : {"127.0.0.1", "::1"}) {
    Strangers strangers(kLimits);
    Connection user(from), other(from);
    ASSERT_TRUE(strangers.Admit(user.ours, kStart));
    ASSERT_TRUE(strangers.Admit(other.ours, kStart));
    user.Send(20'000);
    other.Send(20'000);
    strangers.Review(kStart);
    strangers.Acquaint(user.peer);
    strangers.Acquaint(user.peer);
    for (int look = 0; look < 3; ++look) strangers.Review(kStart);
    EXPECT_TRUE(user.IsOpen()) << from;
    EXPECT_FALSE(other.IsOpen()) << from;
    EXPECT_FALSE(strangers.any()) << from;
  }
}

TEST(StrangersTest, TooManyCallsAreTheEnd) {
  Strangers strangers(kLimits);
  Connection loud("127.0.0.2"), quiet("127.0.0.3"), again("127.0.0.2");
  ASSERT_TRUE(strangers.Admit(loud.ours, kStart));
  ASSERT_TRUE(strangers.Admit(quiet.ours, kStart));
  for (int call = 0; call < 10; ++call)
    for (const Connection* each : {&loud, &quiet}) strangers.CountCall(each->peer, kStart);
  EXPECT_TRUE(loud.IsOpen());
  strangers.CountCall(loud.peer, kStart);
  EXPECT_FALSE(loud.IsOpen());
  EXPECT_TRUE(quiet.IsOpen());
  EXPECT_FALSE(strangers.Admit(again.ours, kStart + absl::Seconds(59)));
  EXPECT_TRUE(strangers.Admit(again.ours, kStart + absl::Seconds(60)));
}

// As who asks after the daemon's health goes on calling.
TEST(StrangersTest, AFewCallsMayBeMadeForEver) {
  Strangers strangers(kLimits);
  Connection probe;
  ASSERT_TRUE(strangers.Admit(probe.ours, kStart));
  for (int second = 1; second <= 60; ++second)
    for (int call = 0; call < 2; ++call)
      strangers.CountCall(probe.peer, kStart + absl::Seconds(second));
  EXPECT_TRUE(probe.IsOpen());
}

TEST(StrangersTest, WhoIsLetInCallsAsOftenAsHeLikes) {
  Strangers strangers(kLimits);
  Connection user;
  ASSERT_TRUE(strangers.Admit(user.ours, kStart));
  for (int call = 0; call < 10; ++call) strangers.CountCall(user.peer, kStart);
  strangers.Acquaint(user.peer);
  for (int call = 0; call < 100; ++call) strangers.CountCall(user.peer, kStart);
  for (int call = 0; call < 100; ++call) strangers.CountCall("fd:4096", kStart);
  EXPECT_TRUE(user.IsOpen());
}

TEST(StrangersTest, AConnectionIsClosedByItsPeersName) {
  for (const char* from : {"127.0.0.1", "::1"}) {
    Strangers strangers(kLimits);
    Connection user(from), other(from);
    ASSERT_TRUE(strangers.Admit(user.ours, kStart));
    ASSERT_TRUE(strangers.Admit(other.ours, kStart));
    strangers.Acquaint(user.peer);
    strangers.Close("fd:4096");
    EXPECT_TRUE(user.IsOpen()) << from;
    strangers.Close(user.peer);
    EXPECT_FALSE(user.IsOpen()) << from;
    EXPECT_TRUE(other.IsOpen()) << from;
  }
}

TEST(StrangersTest, AnAddressIsRefusedForAWhileAndNoOther) {
  Strangers strangers(kLimits);
  Connection loud("127.0.0.2"), again("127.0.0.2"), other("127.0.0.3");
  ASSERT_TRUE(strangers.Admit(loud.ours, kStart));
  loud.Send(20'000);
  strangers.Review(kStart);
  strangers.Review(kStart);
  EXPECT_FALSE(strangers.Admit(again.ours, kStart + absl::Seconds(59)));
  EXPECT_TRUE(strangers.Admit(other.ours, kStart));
  EXPECT_TRUE(strangers.Admit(again.ours, kStart + absl::Seconds(60)));
}

// One who was let in has neighbours behind the same address: a proxy, a house.
TEST(StrangersTest, AnAddressThatSomebodyWasLetInFromStaysOpen) {
  Strangers strangers(kLimits);
  Connection user, loud, next;
  ASSERT_TRUE(strangers.Admit(user.ours, kStart));
  ASSERT_TRUE(strangers.Admit(loud.ours, kStart));
  strangers.Acquaint(user.peer);
  loud.Send(20'000);
  strangers.Review(kStart);
  strangers.Review(kStart);
  EXPECT_FALSE(loud.IsOpen());
  EXPECT_TRUE(strangers.Admit(next.ours, kStart));
  close(std::exchange(user.ours, -1));  // Until he has gone.
  Connection late;
  EXPECT_FALSE(strangers.Admit(late.ours, kStart));
}

// The number of a connection that has gone may be another's by now.
TEST(StrangersTest, ANumberThatIsUsedAgainIsNobodysFault) {
  Strangers strangers(kLimits);
  Connection loud;
  ASSERT_TRUE(strangers.Admit(loud.ours, kStart));
  loud.Send(20'000);
  strangers.Review(kStart);
  Connection innocent;
  ASSERT_EQ(dup2(innocent.ours, loud.ours), loud.ours);
  strangers.Review(kStart);
  EXPECT_TRUE(innocent.IsOpen());
  EXPECT_FALSE(strangers.any());
}

// One port may call at two addresses of the daemon.
TEST(StrangersTest, ASecondConnectionOfOnePortHidesNoFirst) {
  Strangers strangers(kLimits);
  Connection loud("127.0.0.1"), second("127.0.0.1", loud.port);
  ASSERT_EQ(loud.peer, second.peer);
  ASSERT_TRUE(strangers.Admit(loud.ours, kStart));
  ASSERT_TRUE(strangers.Admit(second.ours, kStart));
  loud.Send(20'000);
  strangers.Review(kStart);
  strangers.Review(kStart);
  EXPECT_FALSE(loud.IsOpen());
  EXPECT_TRUE(second.IsOpen());
}

TEST(StrangersTest, WhatIsNoneOfTheNetworksIsNotAdmitted) {
  Strangers strangers(kLimits);
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  EXPECT_FALSE(strangers.Admit(pair[0], kStart));
  for (const char* peer : {"", "fd:7", "ipv4:", "ipv4:1.2.3.4", "ipv6:x:1", "unix:/a:1"})
    strangers.Acquaint(peer);
  close(pair[0]);
  close(pair[1]);
}

}  // namespace
}  // namespace snug::server
