#include "server/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "server/job/tenants.h"
#include "tests/server/testing/test_folder.h"
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

  const TestFolder folder_{"config"};
  const std::string file_ = folder_.path() + "/config.yaml";
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
      "state_dir: /a\nsocket: /b\nmetrics_port: 7\nroots: [/data, /models]\n"
      "devices: [{name: 'cpu:0', capacity: 1GiB}, {name: 'cpu:1', capacity: 1GiB}]\n");
  v1::DaemonConfig config = Read({"--config", file}).value();
  EXPECT_EQ(config.state_dir(), "/a");
  EXPECT_EQ(config.socket(), "/b");
  EXPECT_EQ(config.metrics_port(), 7);
  EXPECT_EQ(config.devices_size(), 2);
  ASSERT_EQ(config.roots_size(), 2);
  EXPECT_EQ(config.roots(1), "/models");
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

// On TCP nothing is served without TLS.
TEST_F(ConfigTest, AnAddressNeedsACertificateAndItsKey) {
  const auto said = [](std::vector<std::string> arguments) {
    const absl::Status status = Read(std::move(arguments)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(said({"--listen", "0.0.0.0:7070"}),
              HasSubstr("listen 0.0.0.0:7070: tls_cert (--tls-cert) is missing"));
  EXPECT_THAT(said({"--listen", "0.0.0.0:7070", "--tls-cert", "c"}), HasSubstr("--tls-key"));
  EXPECT_THAT(said({"--tls-cert", "c"}), HasSubstr("belong to --listen"));
  EXPECT_THAT(said({"--config", File("listen: [{address: 'a:1', tls_key: k}]\n")}),
              HasSubstr("listen a:1: tls_cert"));
  const std::string file = File(
      "listen:\n  - {address: 'a:1', tls_cert: c, tls_key: k}\n"
      "  - {address: 'b:2', tls_cert: c, tls_key: k, tls_ca: a}\n");
  EXPECT_EQ(Read({"--config", file}).value().listen(1).tls_ca(), "a");
  const v1::DaemonConfig config = Read({"--config", file, "--listen", "c:3", "--listen", "d:4",
                                        "--tls-cert", "x", "--tls-key", "y"})
                                      .value();
  ASSERT_EQ(config.listen_size(), 2);
  EXPECT_EQ(config.listen(1).address(), "d:4");
  EXPECT_EQ(config.listen(1).tls_cert(), "x");
  EXPECT_EQ(config.listen(1).tls_ca(), "");
  const std::vector<std::string> line = {"--listen",  "e:5", "--tls-cert", "x",
                                         "--tls-key", "y",   "--tls-ca",   "z"};
  EXPECT_EQ(Read(line).value().listen(0).tls_ca(), "z");
}

TEST_F(ConfigTest, TenantsAreRefusedBySetting) {
  const auto said = [this](const std::string& tenants) {
    return std::string(Read({"--config", File("tenants:\n" + tenants + "\n")}).status().message());
  };
  EXPECT_EQ(said("- {name: blue, roots: [/data/blue], quota: {live_jobs: 3, device_bytes: 2GiB}}"),
            "");
  EXPECT_THAT(said("- {name: Blue}"), HasSubstr("tenants[0].name: must be"));
  EXPECT_EQ(said("- {name: default, quota: {live_jobs: 3}}"), "");
  EXPECT_THAT(said("- {name: default, roots: [/data]}"), HasSubstr("unix socket's users"));
  EXPECT_THAT(said("- {name: a}\n- {name: a}"), HasSubstr("tenants[1].name: there is another"));
  EXPECT_THAT(said("- {name: a, quota: {live_jobs: -1}}"), HasSubstr("tenants[0].quota.live_jobs"));
  EXPECT_THAT(said("- {name: a, quota: {stored_bytes: 0}}"),
              HasSubstr("tenants[0].quota.stored_bytes: 0 bytes are too few"));
  EXPECT_THAT(said("- {name: a, quota: {device_bytes: 1furlong}}"),
              HasSubstr("tenants[0].quota.device_bytes"));
  EXPECT_THAT(said("- {name: a, certificates: [{role: user}]}"),
              HasSubstr("tenants[0].certificates[0]: needs a uri or a subject"));
  EXPECT_THAT(said("- {name: a, certificates: [{uri: 'spiffe://x/y'}]}"),
              HasSubstr("tenants[0].certificates[0].role"));
  EXPECT_THAT(said("- {name: a, certificates: [{uri: u, role: user}]}\n"
                   "- {name: b, certificates: [{uri: u, role: operator}]}"),
              HasSubstr("tenants[1].certificates[0]: u is given twice"));
}

// A URI is its authority's word; what else its owner calls himself does not count beside one.
TEST_F(ConfigTest, ACertificateIsOfTheTenantThatNamesIt) {
  const v1::DaemonConfig config =
      Read({"--config", File("tenants:\n- name: a\n  certificates:\n"
                             "  - {uri: 'spiffe://x/ann', role: viewer}\n"
                             "  - {subject: 'CN=bob,O=X', role: operator}\n")})
          .value();
  const Tenants tenants = Tenants::FromConfig(config).value();
  const auto role = [&](std::vector<std::string> uris, const std::string& subject) {
    const auto who = tenants.OfCertificate({.uris = std::move(uris), .subject = subject});
    EXPECT_EQ(who ? who->name() : "tenant:a", "tenant:a");
    return who ? who->role : v1::Token::ROLE_UNSPECIFIED;
  };
  EXPECT_EQ(role({"spiffe://x/ann"}, "CN=anything"), v1::Token::ROLE_VIEWER);
  EXPECT_EQ(role({}, "CN=bob,O=X"), v1::Token::ROLE_OPERATOR);
  EXPECT_EQ(role({"spiffe://x/other"}, "CN=bob,O=X"), v1::Token::ROLE_UNSPECIFIED);
  EXPECT_EQ(role({"spiffe://x/ann", "spiffe://x/other"}, ""), v1::Token::ROLE_UNSPECIFIED);
  EXPECT_EQ(role({}, "CN=bob"), v1::Token::ROLE_UNSPECIFIED);
  EXPECT_EQ(role({}, "spiffe://x/ann"), v1::Token::ROLE_UNSPECIFIED);
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
