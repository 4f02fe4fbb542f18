#include "server/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/server/testing/tiny_model.h"

namespace snug::server {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

constexpr uid_t kNobody = 65534;

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() {
    for (const char* name : {"XDG_STATE_HOME", "XDG_RUNTIME_DIR", "SNUG_PYTHON"}) unsetenv(name);
    setenv("HOME", "/home/ann", 1);
  }
  ~ConfigTest() override {
    std::filesystem::remove(file_);
    if (getuid() == 0 && seteuid(0) != 0) ADD_FAILURE() << "cannot be root again";
  }

  static absl::StatusOr<v1::DaemonConfig> Read(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "snugd");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    return ConfigFromCommandLine(static_cast<int>(argv.size()), argv.data());
  }
  // The tests may run as root or as a user; both kinds of defaults are tested where they can be.
  static void BecomeUser() {
    if (getuid() == 0) {
      ASSERT_EQ(seteuid(kNobody), 0);
    }
  }
  std::string File(const std::string& text) const {
    WriteText(file_, text);
    return file_;
  }

  const std::string file_ = testing::TempDir() + "/config-" + std::to_string(getpid()) + ".yaml";
};

TEST_F(ConfigTest, DefaultsOfRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  const v1::DaemonConfig config = Read({}).value();
  EXPECT_EQ(config.state_dir(), "/var/lib/snug");
  EXPECT_EQ(config.socket(), "/run/snug/snug.sock");
}

TEST_F(ConfigTest, DefaultsOfAUserFollowTheXdgFolders) {
  BecomeUser();
  v1::DaemonConfig config = Read({}).value();
  EXPECT_EQ(config.state_dir(), "/home/ann/.local/state/snug");
  EXPECT_EQ(config.socket(), "/tmp/snug-" + std::to_string(geteuid()) + "/snug.sock");
  setenv("XDG_STATE_HOME", "/state", 1);
  setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  config = Read({}).value();
  EXPECT_EQ(config.state_dir(), "/state/snug");
  EXPECT_EQ(config.socket(), "/run/user/7/snug/snug.sock");
}

TEST_F(ConfigTest, EveryOtherSettingHasADefault) {
  const v1::DaemonConfig config = Read({}).value();
  EXPECT_FALSE(config.has_metrics_port());  // 9464, and none where somebody has that.
  EXPECT_EQ(config.prepare().memory(), "4GiB");
  EXPECT_EQ(config.prepare().timeout_seconds(), 3600);
  EXPECT_THAT(config.worker(), EndsWith("/snug-worker"));
  EXPECT_THAT(config.worker_cuda(), EndsWith("/snug-worker-cuda"));
  EXPECT_EQ(config.gpu_library(), "libnvidia-ml.so.1");
  EXPECT_THAT(config.shim(), EndsWith("/snug-shim"));
  EXPECT_FALSE(config.python().empty());
  EXPECT_EQ(config.devices_size(), 0);  // The machine's own, when the daemon is built.
}

// The file is over the defaults and the line is over the file; a device on it is over all of the
// file's.
TEST_F(ConfigTest, FlagsAreOverTheFileIsOverTheDefaults) {
  const std::string file = File(
      "state_dir: /a\nsocket: /b\nmetrics_port: 7\n"
      "devices: [{name: 'cpu:0', capacity: 1GiB}, {name: 'cpu:1', capacity: 1GiB}]\n");
  v1::DaemonConfig config = Read({"--config", file}).value();
  EXPECT_EQ(config.state_dir(), "/a");
  EXPECT_EQ(config.socket(), "/b");
  EXPECT_EQ(config.metrics_port(), 7);
  EXPECT_EQ(config.devices_size(), 2);
  config = Read({"--config", file, "--state-dir", "/c", "--socket", "/d", "--metrics-port", "0",
                 "--device", "cpu:0=2GiB"})
               .value();
  EXPECT_EQ(config.state_dir(), "/c");
  EXPECT_EQ(config.socket(), "/d");
  EXPECT_EQ(config.metrics_port(), 0);
  ASSERT_EQ(config.devices_size(), 1);
  EXPECT_EQ(config.devices(0).name(), "cpu:0");
  EXPECT_EQ(config.devices(0).capacity(), "2GiB");
}

// Several at once; what is not said of one is the machine's to say.
TEST_F(ConfigTest, DevicesOfEveryKind) {
  v1::DaemonConfig config =
      Read({"--device", "cpu:0=4GiB", "--device", "gpu:0=40GiB", "--device", "gpu:1"}).value();
  ASSERT_EQ(config.devices_size(), 3);
  EXPECT_EQ(config.devices(1).name(), "gpu:0");
  EXPECT_EQ(config.devices(1).capacity(), "40GiB");
  EXPECT_EQ(config.devices(2).name(), "gpu:1");
  EXPECT_EQ(config.devices(2).capacity(), "");
  config = Read({"--config", File("worker_cuda: ./w\ngpu_library: /lib/x.so\ndevices:\n"
                                  "  - name: gpu:0\n    capacity: 40GiB\n  - name: gpu:1\n")})
               .value();
  ASSERT_EQ(config.devices_size(), 2);
  EXPECT_EQ(config.devices(0).name(), "gpu:0");
  EXPECT_EQ(config.devices(0).capacity(), "40GiB");
  EXPECT_EQ(config.devices(1).name(), "gpu:1");
  EXPECT_EQ(config.worker_cuda(), std::filesystem::current_path().string() + "/w");
  EXPECT_EQ(config.gpu_library(), "/lib/x.so");
}

TEST_F(ConfigTest, PathsDoNotDependOnTheCurrentFolder) {
  const v1::DaemonConfig config = Read({"--state-dir", "state", "--socket", "./x/../s"}).value();
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(config.state_dir(), here + "/state");
  EXPECT_EQ(config.socket(), here + "/s");
}

TEST_F(ConfigTest, AnUnknownKeyNamesTheNearest) {
  const absl::Status status = Read({"--config", File("metric_port: 1\n")}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(file_));
  EXPECT_THAT(std::string(status.message()), HasSubstr("did you mean metrics_port?"));
}

TEST_F(ConfigTest, MistakesOnTheLineAreNamed) {
  EXPECT_THAT(std::string(Read({"--config", "/no/such/file"}).status().message()),
              HasSubstr("/no/such/file"));
  for (const std::string text : {"cpu:0=", "=4GiB", "="})
    EXPECT_THAT(std::string(Read({"--device", text}).status().message()),
                HasSubstr("--device " + text + ": write NAME=BYTES or NAME"));
  EXPECT_TRUE(absl::IsInvalidArgument(Read({"--metrics-port", "70000"}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Read({"--no-such-flag"}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Read({"--config", File("prepare: {timeout_seconds: -1}\n")}).status()));
}

// Nothing to run: the text is the message.
TEST_F(ConfigTest, VersionAndHelp) {
  const absl::Status version = Read({"--version"}).status();
  EXPECT_TRUE(absl::IsOutOfRange(version)) << version;
  EXPECT_EQ(version.message(), "snugd 0.1.0");
  EXPECT_THAT(std::string(Read({"--help"}).status().message()), HasSubstr("--state-dir"));
}

}  // namespace
}  // namespace snug::server
