#include "server/place/host_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace snug::server {
namespace {

namespace fs = std::filesystem;

class HostMemoryTest : public testing::Test {
 protected:
  HostMemoryTest() : root_(testing::TempDir() + "/root-" + std::to_string(getpid())) {
    Write("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:     500 kB\n");
  }
  ~HostMemoryTest() override { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  const std::string root_;
};

TEST_F(HostMemoryTest, MachineWithoutLimits) { EXPECT_EQ(HostMemoryBytes(root_), 1'024'000); }

// The group itself says "max"; the one above it does not.
TEST_F(HostMemoryTest, TightestGroupAboveBinds) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/memory.max", "4096\n");
  EXPECT_EQ(HostMemoryBytes(root_), 4096);
}

TEST_F(HostMemoryTest, FirstVersionOfGroups) {
  Write("/proc/self/cgroup", "4:cpu,memory:/x\n0::/\n");
  Write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "8192\n");
  EXPECT_EQ(HostMemoryBytes(root_), 8192);
}

TEST(DevicesTest, DefaultIsHalfOfTheHost) {
  const auto devices = DevicesOf({}, 1000, 4).value();
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].name, "cpu:0");
  EXPECT_EQ(devices[0].capacity_bytes, 500);
  EXPECT_EQ(devices[0].threads, 4);
}

TEST(DevicesTest, MistakesAreNamed) {
  v1::DaemonConfig config;
  config.add_devices()->set_name("tpu:0");
  EXPECT_FALSE(DevicesOf(config, 1000, 4).ok());
  config.mutable_devices(0)->set_name("cpu:0");
  config.mutable_devices(0)->set_capacity("lots");
  EXPECT_FALSE(DevicesOf(config, 1000, 4).ok());
  config.mutable_devices(0)->set_capacity("1KiB");
  EXPECT_EQ(DevicesOf(config, 1000, 4).value()[0].capacity_bytes, 1024);
  config.add_devices()->set_name("cpu:0");
  EXPECT_FALSE(DevicesOf(config, 1000, 4).ok());
}

}  // namespace
}  // namespace snug::server
