// Asked as snug-prepare asks, and as a process asks that strangers' bytes have taken over. (Its own
// side is tested against this one by prepare_test.)
#include "server/data/file_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "server/data/held_files.h"
#include "tests/server/testing/test_folder.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::server {
namespace {

// Sends bytes with descriptors beside them.
void Send(int socket, const std::string& bytes, const std::vector<int>& fds) {
  std::vector<char> control(CMSG_SPACE(sizeof(int) * fds.size()));
  iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  ASSERT_EQ(sendmsg(socket, &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

struct Answer {
  int code = -1;  // -1: none came.
  std::string content = {};
};

Answer Receive(int socket) {
  int32_t code = -1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part = {&code, sizeof code};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != sizeof code) return {};
  Answer answer = {.code = code};
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr) return answer;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  char bytes[64];
  const ssize_t got = pread(fd, bytes, sizeof bytes, 0);
  if (got > 0) answer.content.assign(bytes, static_cast<size_t>(got));
  close(fd);
  return answer;
}

Answer Ask(int server, const std::string& path, int ends = 1) {
  int pair[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  Send(server, path, std::vector<int>(static_cast<size_t>(ends), pair[1]));
  close(pair[1]);
  const absl::Cleanup close_it = [&] { close(pair[0]); };
  return Receive(pair[0]);
}

int OpenDescriptors() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

class FileServerTest : public testing::Test {
 protected:
  FileServerTest() {
    for (const char* name : {"a", "b", "c"}) {
      WriteText(Path(name), std::string("content of ") + name);
      paths_.insert(Path(name));
    }
  }
  std::string Path(const std::string& name) const { return folder_.path() + "/" + name; }

  const TestFolder folder_{"file-server"};
  std::set<std::string> paths_;
};

TEST_F(FileServerTest, GivesWhatItLists) {
  const auto server = FileServer::Start(paths_, OpenToRead).value();
  EXPECT_EQ(Ask(server->socket(), Path("b")).content, "content of b");
  EXPECT_EQ(Ask(server->socket(), Path("a")).content, "content of a");
  std::string list(1000, '\0');
  list.resize(static_cast<size_t>(pread(server->list(), list.data(), list.size(), 0)));
  EXPECT_EQ(list, Path("a") + '\0' + Path("b") + '\0' + Path("c") + '\0');
  EXPECT_LT(write(server->list(), "x", 1), 0);  // Nobody adds to it.
}

TEST_F(FileServerTest, OpensNothingElse) {
  std::atomic<int> opened = 0;
  const auto server = FileServer::Start(paths_, [&](const std::string& path) {
                        ++opened;
                        return OpenToRead(path);
                      }).value();
  for (const std::string& path : {std::string("/etc/passwd"), std::string("a"),
                                  testing::TempDir() + "/./" + Path("a"), Path("a") + '\0'})
    EXPECT_EQ(Ask(server->socket(), path).code, ENOENT) << path;
  EXPECT_EQ(Ask(server->socket(), std::string(100'000, 'x')).code, -1);  // No path: hung up.
  EXPECT_EQ(opened, 0);
}

TEST_F(FileServerTest, SaysWhyAFileIsNotOpened) {
  for (const auto& [refused, said] :
       {std::pair(EACCES, EACCES), {ESTALE, ESTALE}, {EXDEV, EACCES}, {0, EPERM}}) {
    const auto server = FileServer::Start(paths_, [refused = refused](const std::string&) {
                          errno = refused;
                          return -1;
                        }).value();
    EXPECT_EQ(Ask(server->socket(), Path("a")).code, said) << refused;
  }
}

// It goes on, and keeps none of the descriptors that came.
TEST_F(FileServerTest, MessagesThatAreNoQuestionDoNoHarm) {
  const int before = OpenDescriptors();
  {
    const auto server = FileServer::Start(paths_, OpenToRead).value();
    Send(server->socket(), Path("a"), {});
    EXPECT_EQ(Ask(server->socket(), Path("a"), 2).code, -1);
    EXPECT_EQ(Ask(server->socket(), Path("a"), 200).code, -1);
    const int file = OpenToRead(Path("c"));
    Send(server->socket(), Path("a"), {file});  // It cannot be answered on.
    close(file);
    for (int i = 0; i < 100; ++i) {  // Nobody waits for these answers.
      int pair[2];
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
      Send(server->socket(), Path("a"), {pair[1]});
      close(pair[0]);
      close(pair[1]);
    }
    EXPECT_EQ(Ask(server->socket(), Path("a")).content, "content of a");
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(FileServerTest, ManyAskAtOnce) {
  const auto server = FileServer::Start(paths_, OpenToRead).value();
  std::vector<std::thread> askers;
  std::atomic<int> right = 0;
  for (const char* name : {"a", "b", "c", "a", "b", "c"})
    askers.emplace_back([&, name] {
      for (int i = 0; i < 200; ++i)
        right += Ask(server->socket(), Path(name)).content == std::string("content of ") + name;
    });
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(right, 1200);
}

// Also when a question is under way, and one that nobody has read yet.
TEST_F(FileServerTest, EndsWithWhoStartedIt) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  {
    const auto server = FileServer::Start(paths_, OpenToRead).value();
    for (int i = 0; i < 20; ++i) Send(server->socket(), Path("a"), {pair[1]});
  }
  close(pair[1]);
  pollfd end = {pair[0], POLLIN, 0};
  EXPECT_EQ(poll(&end, 1, 10'000), 1);  // Answers, then an end: no copy of it is left anywhere.
  while (Receive(pair[0]).code == 0) continue;
  EXPECT_EQ(Receive(pair[0]).code, -1);
  close(pair[0]);
}

}  // namespace
}  // namespace snug::server
