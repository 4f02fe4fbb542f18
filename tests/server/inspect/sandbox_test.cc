// What a process in the sandbox can still do, asked of a child that has entered it.
#include "server/inspect/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <map>
#include <string>

namespace snug::server {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // Such a build keeps its calls and its memory.
#else
constexpr bool kSanitized = false;
#endif

constexpr int kNotEntered = 99;

// The exit status of a child that enters the sandbox and then does `what`.
int InSandbox(const std::function<int()>& what, const SandboxLimits& limits = {}) {
  const pid_t child = fork();
  if (child == 0) _exit(EnterSandbox(limits).ok() ? what() : kNotEntered);
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

// The error that a call ends with, 0 for none.
int ErrorOf(const std::function<long()>& call) {
  return WEXITSTATUS(InSandbox([&] { return call() < 0 ? errno : 0; }));
}

TEST(SandboxTest, NoFileNoNetworkNoOtherProgram) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's runtime makes calls of its own";
  EXPECT_EQ(ErrorOf([] { return open("/etc/passwd", O_RDONLY); }), EPERM);
  EXPECT_EQ(ErrorOf([] { return open("/proc/self/mem", O_RDWR); }), EPERM);
  EXPECT_EQ(ErrorOf([] { return socket(AF_INET, SOCK_STREAM, 0); }), EPERM);
  EXPECT_EQ(ErrorOf([] { return socket(AF_UNIX, SOCK_STREAM, 0); }), EPERM);
  EXPECT_EQ(ErrorOf([] { return fork(); }), EPERM);
  EXPECT_EQ(ErrorOf([] { return kill(1, 0); }), EPERM);
  EXPECT_EQ(ErrorOf([] {
              char program[] = "/bin/true";
              char* const argv[] = {program, nullptr};
              return execve(program, argv, argv + 1);
            }),
            EPERM);
}

// Asked of the kernel by the parent: the sandbox has no call for it.
TEST(SandboxTest, RootIsNobodyInIt) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  int entered[2], release[2];
  ASSERT_EQ(pipe(entered), 0);
  ASSERT_EQ(pipe(release), 0);
  const pid_t child = fork();
  char byte = 0;
  if (child == 0) {
    const bool right = EnterSandbox({}).ok() && write(entered[1], "x", 1) == 1;
    _exit(right && read(release[0], &byte, 1) == 1 ? 0 : kNotEntered);
  }
  ASSERT_EQ(read(entered[0], &byte, 1), 1);
  std::map<std::string, std::string> says;
  std::ifstream file("/proc/" + std::to_string(child) + "/status");
  for (std::string line; std::getline(file, line);)
    says[line.substr(0, line.find(':'))] = line.substr(line.find(':') + 1);
  ASSERT_EQ(write(release[1], "x", 1), 1);
  int status = 0;
  waitpid(child, &status, 0);
  for (const int fd : {entered[0], entered[1], release[0], release[1]}) close(fd);
  EXPECT_EQ(says["Uid"], "\t65534\t65534\t65534\t65534");
  EXPECT_EQ(says["Gid"], "\t65534\t65534\t65534\t65534");
  EXPECT_EQ(says["CapEff"], "\t0000000000000000");
  EXPECT_EQ(says["NoNewPrivs"], "\t1");
  EXPECT_EQ(says["Seccomp"], kSanitized ? "\t0" : "\t2");
}

TEST(SandboxTest, MemoryEndsAtItsLimit) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's runtime maps terabytes";
  const auto map = [](size_t bytes) {
    void* const at =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? -1 : 0;
  };
  EXPECT_EQ(ErrorOf([&] { return map(size_t{256} << 20); }), 0);
  EXPECT_EQ(ErrorOf([&] { return map(size_t{2} << 30); }), ENOMEM);
}

TEST(SandboxTest, CpuTimeEndsAtItsLimit) {
  const auto spin = [] {
    for (volatile int64_t i = 0; i >= 0;) i = i == 0;
    return 0;
  };
  EXPECT_TRUE(WIFSIGNALED(InSandbox(spin, {.cpu_seconds = 1})));
}

}  // namespace
}  // namespace snug::server
