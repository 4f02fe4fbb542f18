// What a process that has given rights up can still do, asked of a child that has.
#include "server/shim/confine.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "tests/server/testing/test_folder.h"

namespace snug::shim {
namespace {

namespace fs = std::filesystem;

constexpr int kNotConfined = 99;

// The error that a call ends with in a child behind `confine`, 0 for none.
int ErrorOf(const std::function<int()>& confine, const std::function<long()>& call) {
  const pid_t child = fork();
  if (child == 0) {
    if (GiveUpPrivileges() != 0 || confine() != 0) _exit(kNotConfined);
    _exit(call() < 0 ? errno : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int OfWorker(const std::function<long()>& call) {
  return ErrorOf([] { return RefuseCalls(Sockets::kLocal); }, call);
}

int OfPrepare(const std::function<long()>& call) {
  return ErrorOf([] { return RefuseCalls(Sockets::kNone); }, call);
}

TEST(ConfineTest, SocketsOfTheNetworkAreRefused) {
  for (const int family : {AF_INET, AF_INET6, AF_PACKET}) {
    EXPECT_EQ(OfWorker([&] { return socket(family, SOCK_STREAM, 0); }), EPERM);
    EXPECT_EQ(OfPrepare([&] { return socket(family, SOCK_STREAM, 0); }), EPERM);
  }
  EXPECT_EQ(OfWorker([] { return socket(AF_UNIX, SOCK_STREAM, 0); }), 0);
  EXPECT_EQ(OfPrepare([] { return socket(AF_UNIX, SOCK_STREAM, 0); }), EPERM);
  EXPECT_EQ(OfPrepare([] {
              int ends[2];
              return socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
            }),
            0);
}

TEST(ConfineTest, ProcessesMountsAndTheKernelAreNobodys) {
  for (const auto& of : {OfWorker, OfPrepare}) {
    EXPECT_EQ(of([] { return ptrace(PTRACE_ATTACH, getppid(), 0, 0); }), EPERM);
    EXPECT_EQ(of([] { return mount("none", "/mnt", "tmpfs", 0, nullptr); }), EPERM);
    EXPECT_EQ(of([] { return unshare(CLONE_NEWUSER); }), EPERM);
    EXPECT_EQ(of([] { return syscall(SYS_bpf, 0, nullptr, 0); }), EPERM);
    EXPECT_EQ(of([] { return syscall(SYS_io_uring_setup, 1, nullptr); }), EPERM);
    EXPECT_EQ(of([] { return syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0); }), EPERM);
    EXPECT_EQ(of([] { return syscall(SYS_clone3, nullptr, 0); }), ENOSYS);
    EXPECT_EQ(of([] { return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : -1; }), 0);
  }
}

// Neither has root a capability then, nor does a program that it starts get one.
TEST(ConfineTest, RootHasNoCapabilitiesLeft) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  EXPECT_EQ(ErrorOf(DropCapabilities, [] { return setuid(1); }), EPERM);
  EXPECT_EQ(ErrorOf(DropCapabilities, [] { return unshare(CLONE_NEWNET); }), EPERM);
  EXPECT_EQ(ErrorOf(DropCapabilities,
                    [] {
                      const char* const look = "grep -q '^CapEff:.*[1-9a-f]' /proc/self/status";
                      errno = EEXIST;
                      return execl("/bin/sh", "sh", "-c", look, nullptr);
                    }),
            1);  // Of grep: no such line.
}

TEST(ConfineTest, ThreadsAndProcessesAreStartedAsEver) {
  EXPECT_EQ(OfPrepare([]() -> long {
              std::thread([] {}).join();
              const pid_t child = fork();
              if (child == 0) _exit(0);
              return waitpid(child, nullptr, 0);
            }),
            0);
  EXPECT_EQ(OfPrepare([]() -> long {
              rlimit core{};
              return getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max == 0 ? 0 : -1;
            }),
            0);
}

TEST(ConfineTest, AnAllowListAllowsNothingElse) {
  const auto confine = [] { return RefuseAllCallsBut({SYS_exit_group, SYS_write, SYS_getppid}); };
  EXPECT_EQ(ErrorOf(confine, [] { return getppid(); }), 0);
  EXPECT_EQ(ErrorOf(confine, [] { return getpgid(0); }), EPERM);
  EXPECT_EQ(ErrorOf(confine, [] { return open("/etc/passwd", O_RDONLY); }), EPERM);
}

class FilesTest : public testing::Test {
 protected:
  FilesTest() {
    for (const char* folder : {"/read", "/write", "/else"}) {
      fs::create_directories(dir_ + folder);
      std::ofstream(dir_ + folder + "/file") << "text";
    }
    fs::create_symlink(dir_ + "/else/file", dir_ + "/read/out");
    fs::create_symlink("file", dir_ + "/read/in");
  }

  int Open(const std::string& path, int flags) {
    const Files files = {.read = {dir_ + "/read", dir_ + "/is-not-there"},
                         .write = {dir_ + "/write"}};
    return ErrorOf([&] { return RefuseFilesBut(files); },
                   [&] { return open((dir_ + path).c_str(), flags, 0600); });
  }

  const server::TestFolder folder_{"confine"};
  const std::string dir_ = folder_.path();
};

TEST_F(FilesTest, WhatIsOpenedCountsNotThePath) {
  EXPECT_EQ(Open("/read/file", O_RDONLY), 0);
  EXPECT_EQ(Open("/read/in", O_RDONLY), 0);
  EXPECT_EQ(Open("/read", O_RDONLY | O_DIRECTORY), 0);
  EXPECT_EQ(Open("/read/out", O_RDONLY), EACCES);
  EXPECT_EQ(Open("/read/../else/file", O_RDONLY), EACCES);
  EXPECT_EQ(Open("/else", O_RDONLY | O_DIRECTORY), EACCES);
  EXPECT_EQ(Open("/read/file", O_RDWR), EACCES);
  EXPECT_EQ(Open("/read/new", O_WRONLY | O_CREAT), EACCES);
  EXPECT_EQ(Open("/write/new", O_WRONLY | O_CREAT), 0);
  EXPECT_EQ(Open("/write/file", O_RDWR | O_TRUNC), 0);
}

}  // namespace
}  // namespace snug::shim
