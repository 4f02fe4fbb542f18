#include "server/config.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/snug/status_macros.h"
#include "proto/snug/version.h"
#include "proto/snug/yaml.h"
#include "server/job/tenants.h"
#include "server/node/attempt_files.h"
#include "server/node/tls_files.h"

namespace snug::server {
namespace {

constexpr int64_t kMaxConfigBytes = 1 << 20;

// What the command line said; empty and -1: nothing.
struct Flags {
  std::string config;
  std::string state_dir;
  std::string socket;
  std::vector<std::string> devices;
  std::vector<std::string> listen, listen_http;
  std::string tls_cert, tls_key, tls_ca;
  int metrics_port = -1;
  std::string restore;
  std::string host_memory;
  bool accept_loss = false;
};

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string BinaryDir() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
}

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// CLI11 throws; nothing of it leaves this function.
absl::StatusOr<Flags> ParseFlags(int argc, char** argv) {
  Flags flags;
  CLI::App app("The Snug daemon: runs fine-tuning jobs on this machine.", "snugd");
  app.add_option("--config", flags.config, "DaemonConfig in YAML");
  app.add_option("--state-dir", flags.state_dir, "Jobs, datasets and checkpoints");
  app.add_option("--socket", flags.socket, "Unix socket to serve on");
  app.add_option("--listen", flags.listen,
                 "HOST:PORT to serve on as well, over TLS; again for more")
      ->allow_extra_args(false);
  app.add_option("--listen-http", flags.listen_http,
                 "HOST:PORT of the status page, OpenAI's API and /metrics over HTTPS, beside "
                 "loopback; again for more")
      ->allow_extra_args(false);
  app.add_option("--tls-cert", flags.tls_cert, "Certificate of these addresses, in PEM");
  app.add_option("--tls-key", flags.tls_key, "Its key, in PEM");
  app.add_option("--tls-ca", flags.tls_ca,
                 "Authorities in PEM: clients of --listen need a certificate by one of them, and "
                 "no token");
  app.add_option("--device", flags.devices,
                 "A device, and how much of it: cpu:0=4GiB, gpu:0=40GiB, gpu:1; again for more")
      ->allow_extra_args(false);
  app.add_option("--metrics-port", flags.metrics_port, "Port of /metrics on loopback; 0 = any")
      ->check(CLI::Range(0, 65535));
  app.add_option("--restore", flags.restore,
                 "Puts a backup in the place of the store, and ends; what was there is kept");
  app.add_option("--host-memory", flags.host_memory,
                 "Of the host's memory, beside the devices cpu:N, that plans may use")
      ->type_name("BYTES");
  app.add_flag("--accept-loss", flags.accept_loss,
               "Starts although the store holds less than it has held");
  app.set_version_flag("--version", absl::StrCat("snugd ", kVersion));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return absl::OutOfRangeError(app.help());
  } catch (const CLI::CallForVersion& version) {
    return absl::OutOfRangeError(version.what());
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(absl::StrCat(error.what(), "; see snugd --help"));
  }
  return flags;
}

std::string UserFolder(const char* variable, const char* below_home) {
  const std::string given = Environment(variable);
  if (!given.empty()) return given;
  return absl::StrCat(Environment("HOME"), "/", below_home);
}

std::string DefaultStateDir() {
  if (geteuid() == 0) return "/var/lib/snug";
  return UserFolder("XDG_STATE_HOME", ".local/state") + "/snug";
}

std::string DefaultSocket() {
  if (geteuid() == 0) return "/run/snug/snug.sock";
  const std::string runtime = Environment("XDG_RUNTIME_DIR");
  if (!runtime.empty()) return runtime + "/snug/snug.sock";
  return SharedSocketFolder() + "/snug.sock";
}

std::string DefaultPython() {
  const std::string given = Environment("SNUG_PYTHON");
  if (!given.empty()) return given;
  const std::string venv = BinaryDir() + "/../../.venv/bin/python";
  return Exists(venv) ? venv : "python3";
}

template <typename Setter>
void SetIf(const std::string& value, Setter&& set) {
  if (!value.empty()) set(value);
}

absl::Status AddDevices(const std::vector<std::string>& given, v1::DaemonConfig& config) {
  if (!given.empty()) config.clear_devices();
  for (const std::string& text : given) {
    const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (parts.front().empty() || parts.back().empty())
      return absl::InvalidArgumentError(
          absl::StrCat("--device ", text, ": write NAME=BYTES or NAME, as in cpu:0=4GiB or gpu:1"));
    v1::DeviceConfig& device = *config.add_devices();
    device.set_name(parts.front());
    if (parts.size() == 2) device.set_capacity(parts.back());
  }
  return absl::OkStatus();
}

absl::Status AddListen(const Flags& flags, v1::DaemonConfig& config) {
  const bool tls = !(flags.tls_cert.empty() && flags.tls_key.empty() && flags.tls_ca.empty());
  if (flags.listen.empty() && flags.listen_http.empty() && tls)
    return absl::InvalidArgumentError(
        "--tls-cert, --tls-key and --tls-ca belong to --listen and --listen-http, which are not "
        "given");
  if (!flags.listen.empty()) config.clear_listen();
  if (!flags.listen_http.empty()) config.clear_listen_http();
  const auto add = [&](const std::string& address, v1::ListenConfig& listen) {
    listen.set_address(address);
    listen.set_tls_cert(flags.tls_cert);
    listen.set_tls_key(flags.tls_key);
  };
  for (const std::string& address : flags.listen) {
    v1::ListenConfig& listen = *config.add_listen();
    add(address, listen);
    listen.set_tls_ca(flags.tls_ca);
  }
  for (const std::string& address : flags.listen_http) add(address, *config.add_listen_http());
  for (const v1::ListenConfig& listen : config.listen())
    RETURN_IF_ERROR(CheckListen("listen", listen));
  for (const v1::ListenConfig& listen : config.listen_http()) {
    RETURN_IF_ERROR(CheckListen("listen_http", listen));
    if (!listen.tls_ca().empty())
      return absl::InvalidArgumentError(
          absl::StrCat("listen_http ", listen.address(),
                       ": tls_ca is of listen alone; over HTTP clients show tokens"));
  }
  return absl::OkStatus();
}

void FillDefaults(v1::DaemonConfig& config) {
  if (config.state_dir().empty()) config.set_state_dir(DefaultStateDir());
  if (config.socket().empty()) config.set_socket(DefaultSocket());
  if (config.worker().empty()) config.set_worker(BinaryDir() + "/snug-worker");
  if (config.worker_cuda().empty()) config.set_worker_cuda(BinaryDir() + "/snug-worker-cuda");
  if (config.gpu_library().empty()) config.set_gpu_library("libnvidia-ml.so.1");
  if (config.shim().empty()) config.set_shim(BinaryDir() + "/snug-shim");
  if (config.inspect().empty()) config.set_inspect(BinaryDir() + "/snug-inspect");
  if (config.python().empty()) config.set_python(DefaultPython());
  v1::PrepareLimits& prepare = *config.mutable_prepare();
  if (prepare.memory().empty()) prepare.set_memory("4GiB");
  if (prepare.timeout_seconds() == 0) prepare.set_timeout_seconds(3600);
}

std::string Absolute(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

}  // namespace

std::string SharedSocketFolder() { return absl::StrCat("/tmp/snug-", geteuid()); }

absl::StatusOr<v1::DaemonConfig> ConfigFromCommandLine(int argc, char** argv) {
  ASSIGN_OR_RETURN(const Flags flags, ParseFlags(argc, argv));
  v1::DaemonConfig config;
  if (!flags.config.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(flags.config, kMaxConfigBytes));
    RETURN_IF_ERROR(ParseYaml(text, flags.config, &config));
    if (!config.restore().empty() || config.accept_loss())
      return absl::InvalidArgumentError(absl::StrCat(
          flags.config, ": restore and accept_loss belong on the command line, for one start"));
  }
  SetIf(flags.state_dir, [&](const std::string& value) { config.set_state_dir(value); });
  SetIf(flags.socket, [&](const std::string& value) { config.set_socket(value); });
  if (!flags.restore.empty()) config.set_restore(Absolute(flags.restore));
  if (!flags.host_memory.empty()) config.set_host_memory(flags.host_memory);
  config.set_accept_loss(flags.accept_loss);
  if (flags.metrics_port >= 0) config.set_metrics_port(flags.metrics_port);
  RETURN_IF_ERROR(AddDevices(flags.devices, config));
  RETURN_IF_ERROR(AddListen(flags, config));
  FillDefaults(config);
  if (config.prepare().timeout_seconds() < 0)
    return absl::InvalidArgumentError("prepare.timeout_seconds is negative");
  // Workers and requests carry these paths: they must not depend on anybody's current folder.
  config.set_state_dir(Absolute(config.state_dir()));
  config.set_socket(Absolute(config.socket()));
  config.set_worker(Absolute(config.worker()));
  config.set_worker_cuda(Absolute(config.worker_cuda()));
  config.set_shim(Absolute(config.shim()));
  config.set_inspect(Absolute(config.inspect()));
  for (std::string& root : *config.mutable_roots()) root = Absolute(root);
  for (v1::TenantConfig& tenant : *config.mutable_tenants())
    for (std::string& root : *tenant.mutable_roots()) root = Absolute(root);
  RETURN_IF_ERROR(Tenants::FromConfig(config).status());
  return config;
}

std::string LauncherSocket() { return Environment("SNUG_LAUNCHER"); }

std::string PrepareScript() {
  const std::string given = Environment("SNUG_PREPARE");
  if (!given.empty()) return given;
  const std::string installed = BinaryDir() + "/../prepare/snug_prepare.py";
  return Exists(installed) ? installed : BinaryDir() + "/../../worker/prepare/snug_prepare.py";
}

}  // namespace snug::server
