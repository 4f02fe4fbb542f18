#include "server/node/link_server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <optional>
#include <thread>

#include "absl/time/clock.h"
#include "server/node/clock.h"
#include "tests/server/testing/test_folder.h"

namespace snug::server {
namespace {

// A worker's end, that says what it likes.
class Peer {
 public:
  explicit Peer(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~Peer() { close(fd_); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void Send(const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
  }
  void Say(const v1::WorkerEvent& event) { Send(Frame(event.SerializeAsString())); }
  void Hello() {
    v1::WorkerEvent event;
    event.mutable_hello()->set_job_id("job-a");
    Say(event);
  }

  bool IsClosedWithin(absl::Duration patience) {
    pollfd set = {fd_, POLLIN, 0};
    if (poll(&set, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) <= 0) return false;
    char byte;
    return read(fd_, &byte, 1) <= 0;
  }

 private:
  const int fd_;
};

v1::WorkerEvent Beat(int64_t step) {
  v1::WorkerEvent event;
  event.mutable_heartbeat()->set_global_step(step);
  return event;
}

class LinkServerTest : public testing::Test {
 protected:
  void Start(LinkLimits limits = {}) {
    LinkServer::Handlers handlers;
    handlers.on_events = [this](LinkServer::ConnectionId id) {
      absl::MutexLock lock(&mutex_);
      ++announced_;
      last_ = id;
    };
    handlers.on_closed = [this](LinkServer::ConnectionId, const absl::Status& why,
                                LinkServer::Events rest) {
      absl::MutexLock lock(&mutex_);
      closed_.push_back(why);
      rest_ = std::move(rest);
    };
    server_ = LinkServer::Start(path_, std::move(handlers), limits).value();
  }
  // Waits until some peer's words wait to be taken.
  LinkServer::ConnectionId Announced(int times = 1) {
    absl::MutexLock lock(&mutex_);
    const auto told = [&] { return announced_ >= times; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&told), absl::Seconds(30)));
    return last_;
  }
  absl::Status Closed() {
    absl::MutexLock lock(&mutex_);
    const auto told = [&] { return !closed_.empty(); };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&told), absl::Seconds(30))) return {};
    return closed_.back();
  }

  const TestFolder folder_{"link"};
  const std::string path_ = folder_.path() + "/link";
  absl::Mutex mutex_;
  int announced_ = 0;
  LinkServer::ConnectionId last_ = 0;
  std::vector<absl::Status> closed_;
  LinkServer::Events rest_;
  std::unique_ptr<LinkServer> server_;
};

// Twenty thousand heartbeats are one, announced once.
TEST_F(LinkServerTest, AFloodIsCoalesced) {
  Start({.events_per_second = 1e6});
  Peer peer(path_);
  peer.Hello();
  const LinkServer::ConnectionId id = Announced();
  EXPECT_EQ(server_->Take(id).size(), 1u);
  server_->Welcome(id);
  std::string flood;
  for (int64_t step = 1; step <= 20'000; ++step) flood += Frame(Beat(step).SerializeAsString());
  peer.Send(flood);
  absl::SleepFor(absl::Seconds(2));
  EXPECT_EQ(Announced(2), id);
  EXPECT_EQ(announced_, 2);
  const LinkServer::Events events = server_->Take(id);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].heartbeat().global_step(), 20'000);
}

// Of checkpoints the last few; a step and a heartbeat do not push each other out.
TEST_F(LinkServerTest, WhatIsTakenLateIsTheLastOfEachKind) {
  LinkMailbox mailbox;
  for (int64_t step = 1; step <= 40; ++step) {
    v1::WorkerEvent event;
    event.mutable_step()->mutable_progress()->set_global_step(step);
    mailbox.Put(event);
    event.mutable_checkpoint()->set_global_step(step);
    mailbox.Put(event);
    mailbox.Put(Beat(step));
  }
  const LinkServer::Events events = mailbox.Take();
  ASSERT_EQ(events.size(), LinkMailbox::kMaxCheckpoints + 2);
  EXPECT_EQ(events[0].checkpoint().global_step(), 25);
  EXPECT_EQ(events[16].step().progress().global_step(), 40);
  EXPECT_EQ(events[17].heartbeat().global_step(), 40);
  EXPECT_TRUE(mailbox.Take().empty());
}

TEST_F(LinkServerTest, WhoeverDoesNotSayHelloIsClosed) {
  Start({.hello = absl::Milliseconds(200)});
  Peer peer(path_);
  EXPECT_TRUE(peer.IsClosedWithin(absl::Seconds(30)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(Closed()));
}

TEST_F(LinkServerTest, WhoeverSaidHelloMayBeSilent) {
  Start({.hello = absl::Milliseconds(200), .message = absl::Milliseconds(200)});
  Peer peer(path_);
  peer.Hello();
  Announced();
  EXPECT_FALSE(peer.IsClosedWithin(absl::Seconds(2)));
}

TEST_F(LinkServerTest, HalfAMessageIsNotWaitedForForEver) {
  Start({.message = absl::Milliseconds(200)});
  Peer peer(path_);
  peer.Hello();
  server_->Welcome(Announced());
  peer.Send(Frame(Beat(1).SerializeAsString()).substr(0, 2));
  EXPECT_TRUE(peer.IsClosedWithin(absl::Seconds(30)));
  EXPECT_TRUE(absl::IsInvalidArgument(Closed()));
}

// A stranger may not make the daemon hold a megabyte.
TEST_F(LinkServerTest, AFirstMessageIsSmall) {
  Start();
  Peer peer(path_);
  peer.Send(Frame(std::string(5000, 'x')).substr(0, 3));
  EXPECT_TRUE(peer.IsClosedWithin(absl::Seconds(30)));
}

// Idle connections keep no worker out, and none that was welcomed makes room for them.
TEST_F(LinkServerTest, TheOldestStrangerMakesRoom) {
  Start({.connections = 4, .strangers = 3});
  Peer worker(path_);
  worker.Hello();
  server_->Welcome(Announced());
  std::vector<std::unique_ptr<Peer>> idle;
  for (int i = 0; i < 20; ++i) idle.push_back(std::make_unique<Peer>(path_));
  Peer another(path_);
  another.Hello();
  Announced(2);
  EXPECT_TRUE(idle[0]->IsClosedWithin(absl::Seconds(30)));
  EXPECT_FALSE(worker.IsClosedWithin(absl::Milliseconds(200)));
}

// All descriptors of the process but one.
class FewDescriptors {
 public:
  FewDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few = {.rlim_cur = 64, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    for (int fd = dup(0); fd >= 0; fd = dup(0)) taken_.push_back(fd);
    close(taken_.back());
    taken_.pop_back();
  }
  ~FewDescriptors() {
    for (const int fd : taken_) close(fd);
    setrlimit(RLIMIT_NOFILE, &before_);
  }

 private:
  rlimit before_ = {};
  std::vector<int> taken_;
};

// Whoever waits to be accepted makes the listener ready again at once, and so the loop a spinning
// one, did it not pause.
TEST_F(LinkServerTest, WithoutDescriptorsItWaitsInsteadOfTryingAgainAndAgain) {
  Start();
  const auto cpu = [] {
    timespec now = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return absl::DurationFromTimespec(now);
  };
  std::optional<Peer> peer;
  {
    const FewDescriptors few;
    peer.emplace(path_);
    const absl::Duration before = cpu();
    absl::SleepFor(absl::Seconds(1));
    EXPECT_LT(cpu() - before, absl::Milliseconds(300));
  }
  peer->Hello();
  EXPECT_EQ(server_->Take(Announced()).size(), 1u);
}

// A flood is read slowly, and so keeps no core busy: after the first of it there is a pause.
TEST_F(LinkServerTest, WhoeverSaysTooMuchIsReadLater) {
  Start({.events_per_second = 500.0});
  Peer peer(path_);
  peer.Hello();
  EXPECT_EQ(server_->Take(Announced()).size(), 1u);
  std::string flood;
  for (int64_t step = 1; step <= 40'000; ++step) flood += Frame(Beat(step).SerializeAsString());
  std::thread sender([&] { peer.Send(flood); });
  const absl::Duration begin = SinceBoot();
  for (int64_t last = 0; last < 40'000;) {
    for (const v1::WorkerEvent& event : server_->Take(1)) last = event.heartbeat().global_step();
    absl::SleepFor(absl::Milliseconds(10));
  }
  sender.join();
  EXPECT_GT(SinceBoot() - begin, absl::Seconds(2));
}

// What it said last is not lost with it.
TEST_F(LinkServerTest, LastWordsComeWithTheEnd) {
  Start({.events_per_second = 2.0});
  {
    Peer peer(path_);
    peer.Hello();
    server_->Take(Announced());
    peer.Say(Beat(7));
  }
  EXPECT_TRUE(absl::IsUnavailable(Closed()));
  absl::MutexLock lock(&mutex_);
  ASSERT_EQ(rest_.size(), 1u);
  EXPECT_EQ(rest_[0].heartbeat().global_step(), 7);
}

}  // namespace
}  // namespace snug::server
