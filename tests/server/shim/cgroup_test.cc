// In a folder that looks as the kernel's does: whoever could run these on real control groups would
// need a machine that has version 2 of them, with a group handed over. deploy/package_test.py says
// what such a machine grants.
#include "server/shim/cgroup.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/testing/test_folder.h"

namespace snug::shim {
namespace {

namespace fs = std::filesystem;

const char kSelf[] = "4:memory:/elsewhere\n0::/snug.slice/snug-worker@1.service\n";
constexpr CgroupLimits kLimits = {.memory_bytes = 3LL << 30, .processes = 512};

class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* leaf : {"shim", "worker"}) {
      fs::create_directories(unit_ / leaf);
      Write(unit_ / leaf / "cgroup.procs", "");
    }
    for (const char* limit : {"memory.max", "memory.swap.max", "memory.oom.group", "pids.max"})
      Write(unit_ / "worker" / limit, "max");
    Write(unit_ / "cgroup.controllers", "cpu memory pids\n");
    Write(unit_ / "cgroup.subtree_control", "");
    Write(unit_ / "cgroup.procs", std::to_string(getpid()) + "\n");
  }

  static void Write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string Read(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  int Open(const std::string& self = kSelf) {
    return cgroup_.OpenOwn(mount_.string(), self, kLimits);
  }

  const server::TestFolder folder_{"cgroup"};
  const fs::path mount_ = folder_.path();
  const fs::path unit_ = mount_ / "snug.slice/snug-worker@1.service";
  Cgroup cgroup_;
};

// F-38
TEST_F(CgroupTest, TheWorkersGroupHasTheLimits) {
  ASSERT_EQ(Open(), 0);
  EXPECT_EQ(Read(unit_ / "shim/cgroup.procs"), "0");
  EXPECT_EQ(Read(unit_ / "cgroup.subtree_control"), "+memory +pids");
  EXPECT_EQ(Read(unit_ / "worker/memory.max"), "3221225472");
  EXPECT_THAT(Read(unit_ / "worker/memory.swap.max"), testing::StartsWith("0"));
  EXPECT_THAT(Read(unit_ / "worker/memory.oom.group"), testing::StartsWith("1"));
  EXPECT_EQ(Read(unit_ / "worker/pids.max"), "512");
  EXPECT_EQ(Read(unit_ / "worker/cgroup.procs"), "");  // Nobody is in it yet.
}

TEST_F(CgroupTest, WhatIsStartedBetweenEnterAndLeaveIsInIt) {
  ASSERT_EQ(Open(), 0);
  Write(unit_ / "shim/cgroup.procs", "");
  EXPECT_EQ(cgroup_.Enter(), 0);
  EXPECT_EQ(Read(unit_ / "worker/cgroup.procs"), "0");
  EXPECT_EQ(Read(unit_ / "shim/cgroup.procs"), "");
  EXPECT_EQ(cgroup_.Leave(), 0);
  EXPECT_EQ(Read(unit_ / "shim/cgroup.procs"), "0");
}

// F-38
TEST_F(CgroupTest, WhatTheKernelEndedIsCounted) {
  ASSERT_EQ(Open(), 0);
  EXPECT_EQ(cgroup_.MemoryKills(), 0);
  Write(unit_ / "worker/memory.events", "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\n");
  EXPECT_EQ(cgroup_.MemoryKills(), 2);
}

// Nothing is touched that is not a group of its own, handed over.
TEST_F(CgroupTest, WhereItsGroupIsNotItsOwnThereAreNoLimits) {
  EXPECT_EQ(Open("0::/\n"), ENOTSUP);                            // The root, or a container's.
  EXPECT_EQ(Open("4:memory:/a\n1:name=systemd:/b\n"), ENOTSUP);  // Version 1.
  EXPECT_EQ(Open("0::/gone.service\n"), ENOENT);
  Write(unit_ / "cgroup.procs", "1\n" + std::to_string(getpid()) + "\n");
  EXPECT_EQ(Open(), EBUSY);
  Write(unit_ / "cgroup.procs", std::to_string(getpid()) + "\n");
  Write(unit_ / "cgroup.controllers", "cpu pids hugetlb\n");
  EXPECT_EQ(Open(), ENOTSUP);
  EXPECT_EQ(cgroup_.Enter(), 0);
  EXPECT_EQ(cgroup_.Leave(), 0);
  EXPECT_EQ(cgroup_.MemoryKills(), 0);
  EXPECT_EQ(Read(unit_ / "cgroup.subtree_control"), "");
  EXPECT_EQ(Read(unit_ / "shim/cgroup.procs"), "");
}

// Without accounting of swap there is no such file, and nothing that it could limit.
TEST_F(CgroupTest, WithoutSwapTheOtherLimitsStand) {
  fs::remove(unit_ / "worker/memory.swap.max");
  ASSERT_EQ(Open(), 0);
  EXPECT_EQ(Read(unit_ / "worker/memory.max"), "3221225472");
  EXPECT_FALSE(fs::exists(unit_ / "worker/memory.swap.max"));
}

// The daemon's folder for workers; this process stays where it is, beside others.
TEST_F(CgroupTest, AGroupInTheDaemonsFolder) {
  Write(unit_ / "cgroup.procs", "1\n2\n");
  const std::string worker = unit_ / "job-a.3";
  const auto open = [&] {
    return cgroup_.OpenBelow(unit_, "job-a.3", mount_.string(), kSelf, kLimits);
  };
  EXPECT_EQ(open(), ENOENT);  // The kernel makes these files with a group, and nobody else does.
  EXPECT_FALSE(fs::exists(worker));
  EXPECT_EQ(cgroup_.Enter(), 0);
  fs::create_directories(worker);
  for (const char* limit : {"memory.max", "memory.oom.group", "pids.max", "cgroup.procs"})
    Write(worker + "/" + limit, "");
  ASSERT_EQ(open(), 0);
  EXPECT_EQ(cgroup_.worker(), worker);
  EXPECT_EQ(Read(worker + "/memory.max"), "3221225472");
  EXPECT_EQ(Read(worker + "/pids.max"), "512");
  EXPECT_EQ(cgroup_.Enter(), 0);
  EXPECT_EQ(Read(worker + "/cgroup.procs"), "0");
  EXPECT_EQ(cgroup_.Leave(), 0);
  EXPECT_EQ(Read(unit_ / "cgroup.procs"), "0\n2\n");
  EXPECT_EQ(Read(unit_ / "cgroup.subtree_control"), "");
  Write(worker + "/memory.events", "oom_kill 4\n");
  EXPECT_EQ(cgroup_.MemoryKills(), 4);
  for (const auto& file : fs::directory_iterator(worker)) fs::remove(file);  // As the kernel does.
  cgroup_.Remove();
  EXPECT_FALSE(fs::exists(worker));
}

// A limit that cannot be set is no limit: the worker is not put where it would seem to have one.
TEST_F(CgroupTest, ALimitThatIsRefusedIsSaid) {
  fs::remove(unit_ / "worker/memory.max");
  EXPECT_EQ(Open(), ENOENT);
  EXPECT_EQ(cgroup_.Enter(), 0);
  EXPECT_EQ(Read(unit_ / "worker/cgroup.procs"), "");
}

}  // namespace
}  // namespace snug::shim
