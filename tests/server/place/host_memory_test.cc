#include "server/place/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/server/testing/test_folder.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

class HostMemoryTest : public testing::Test {
 protected:
  HostMemoryTest() { Write("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:     500 kB\n"); }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  const TestFolder folder_{"root"};
  const std::string root_ = folder_.path();
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

TEST_F(HostMemoryTest, TheFirstProcessorIsNamed) {
  EXPECT_EQ(ProcessorModel(root_), "");
  Write("/proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 9B14: x\n\nmodel name\t: other\n");
  EXPECT_EQ(ProcessorModel(root_), "AMD EPYC 9B14: x");
}

}  // namespace
}  // namespace snug::server
