// In folders that look as the kernel's do.
#include "server/node/delegated_group.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/testing/test_folder.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class DelegatedGroupTest : public testing::Test {
 protected:
  DelegatedGroupTest() {
    Write("/proc/self/cgroup", "4:memory:/elsewhere\n0::/app.slice/run-1.scope\n");
    MakeGroup("/app.slice/run-1.scope");
  }

  void MakeGroup(const std::string& group) {
    group_ = "/sys/fs/cgroup" + group;
    Write(group_ + "/cgroup.type", "domain\n");
    Write(group_ + "/cgroup.controllers", "cpu memory pids\n");
    Write(group_ + "/cgroup.subtree_control", "");
    Write(group_ + "/cgroup.procs", absl::StrCat(getpid(), "\n"));
    Write(group_ + "/daemon/cgroup.procs", "");
  }
  void Write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string Read(const std::string& path) const {
    std::ostringstream text;
    text << std::ifstream(root_ + path).rdbuf();
    return text.str();
  }
  void ExpectNone(const char* why) const {
    const absl::StatusOr<std::string> taken = TakeDelegatedGroup(root_);
    EXPECT_TRUE(absl::IsFailedPrecondition(taken.status())) << taken.status();
    EXPECT_THAT(std::string(taken.status().message()), HasSubstr(why));
    EXPECT_EQ(Read(group_ + "/cgroup.subtree_control"), "");
    EXPECT_EQ(Read(group_ + "/daemon/cgroup.procs"), "");
  }

  const TestFolder folder_{"group"};
  const std::string root_ = folder_.path();
  std::string group_;
};

TEST_F(DelegatedGroupTest, TheDaemonMovesAsideAndHandsControllersOn) {
  fs::create_directories(root_ + group_ + "/job-a.1");  // Of a shim that was killed.
  Write(group_ + "/job-b.2/cgroup.procs", "7\n");       // Not empty, so the kernel keeps it.
  EXPECT_EQ(TakeDelegatedGroup(root_).value(), root_ + group_);
  EXPECT_EQ(Read(group_ + "/daemon/cgroup.procs"), "0");
  EXPECT_EQ(Read(group_ + "/cgroup.subtree_control"), "+memory +pids");
  EXPECT_FALSE(fs::exists(root_ + group_ + "/job-a.1"));
  EXPECT_TRUE(fs::exists(root_ + group_ + "/job-b.2"));
}

TEST_F(DelegatedGroupTest, TheRootThatAContainerSees) {
  Write("/proc/self/cgroup", "0::/\n");
  MakeGroup("");
  EXPECT_EQ(TakeDelegatedGroup(root_).value(), root_ + "/sys/fs/cgroup");
  fs::remove(root_ + group_ + "/cgroup.type");
  Write(group_ + "/cgroup.subtree_control", "");
  Write(group_ + "/daemon/cgroup.procs", "");
  ExpectNone("the machine's own");
}

TEST_F(DelegatedGroupTest, WhatIsMissingIsSaid) {
  Write(group_ + "/cgroup.procs", absl::StrCat("1\n", getpid(), "\n"));
  ExpectNone("other processes");
  Write(group_ + "/cgroup.procs", absl::StrCat(getpid(), "\n"));
  Write(group_ + "/cgroup.controllers", "cpu memory\n");
  ExpectNone("no controller pids");
  Write(group_ + "/cgroup.controllers", "pids\n");
  ExpectNone("no controller memory");
  Write("/proc/self/cgroup", "4:memory:/a\n1:name=systemd:/b\n");
  ExpectNone("version 2");
}

// Where it may only look, as in most containers, the kernel says so.
TEST_F(DelegatedGroupTest, AGroupThatCannotBeWrittenIsNone) {
  fs::remove_all(root_ + group_ + "/daemon");
  Write(group_ + "/daemon", "");  // A file: nothing can be made of it, by root neither.
  EXPECT_FALSE(TakeDelegatedGroup(root_).ok());
  EXPECT_EQ(Read(group_ + "/cgroup.subtree_control"), "");
}

}  // namespace
}  // namespace snug::server
