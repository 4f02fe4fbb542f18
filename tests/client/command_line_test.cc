#include "client/command_line.h"

#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "client/connection.h"
#include "client/json.h"
#include "client/run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace snug::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CommandLineTest : public ::testing::Test {
 protected:
  CommandLineTest() { unsetenv("SNUG_SERVER"); }

  CommandLine Parsed(std::vector<std::string> arguments) {
    CommandLine line;
    EXPECT_EQ(ParseCommandLine(std::move(arguments), terminal_, &line), std::nullopt) << err_.str();
    return line;
  }

  // The exit code of a line that goes no further.
  int Ended(std::vector<std::string> arguments) {
    CommandLine line;
    return ParseCommandLine(std::move(arguments), terminal_, &line).value_or(-1);
  }

  std::ostringstream out_, err_;
  Terminal terminal_{.out = out_, .err = err_};
};

TEST_F(CommandLineTest, FileAndOverridesInAnyOrderWithFlags) {
  const CommandLine line = Parsed({"submit", "job.yaml", "training.max_steps=5", "--watch",
                                   "lora.target_modules=[q_proj,v_proj]", "memory.stash={}"});
  EXPECT_EQ(line.command, "submit");
  EXPECT_EQ(line.file, "job.yaml");
  EXPECT_TRUE(line.watch);
  EXPECT_THAT(line.overrides,
              ElementsAre("training.max_steps=5", "lora.target_modules=[q_proj,v_proj]",
                          "memory.stash={}"));
}

TEST_F(CommandLineTest, ServerAndOutputStandBeforeOrBehindTheCommand) {
  const CommandLine before = Parsed({"--server", "unix:/a", "--output", "json", "get", "j"});
  EXPECT_EQ(before.server.name, "unix:/a");
  EXPECT_EQ(before.output, Output::kJson);
  const CommandLine behind = Parsed({"get", "j", "--output", "json", "--server=unix:/b"});
  EXPECT_EQ(behind.server.name, "unix:/b");
  EXPECT_EQ(behind.output, Output::kJson);
  EXPECT_EQ(behind.job, "j");
  EXPECT_EQ(Parsed({"get", "j"}).output, Output::kTable);
  const CommandLine both =
      Parsed({"--server", "unix:/a", "-o", "json", "list", "--server", "unix:/b", "-o", "table"});
  EXPECT_EQ(both.server.name, "unix:/b");
  EXPECT_EQ(both.output, Output::kTable);
}

TEST_F(CommandLineTest, TheEnvironmentNamesTheServerUnlessTheLineDoes) {
  setenv("SNUG_SERVER", "unix:/env", 1);
  EXPECT_EQ(Parsed({"list"}).server.name, "unix:/env");
  EXPECT_EQ(Parsed({"list", "--server", "unix:/line"}).server.name, "unix:/line");
  unsetenv("SNUG_SERVER");
  EXPECT_THAT(Parsed({"list"}).server.name, HasSubstr("/snug/snug.sock"));
}

TEST_F(CommandLineTest, TheDefaultIsOnesOwnDaemonElseTheService) {
  const auto none = [](const std::string&) { return false; };
  const auto all = [](const std::string&) { return true; };
  const auto service = [](const std::string& name) { return name == kServiceSocket; };
  EXPECT_EQ(DefaultServerOf(0, "/run/user/0", none), kServiceSocket);
  const std::string own = "unix:/run/user/7/snug/snug.sock";
  EXPECT_EQ(DefaultServerOf(7, "/run/user/7", none), own);
  EXPECT_EQ(DefaultServerOf(7, "/run/user/7", all), own);
  EXPECT_EQ(DefaultServerOf(7, "/run/user/7", service), kServiceSocket);
  EXPECT_EQ(DefaultServerOf(7, "", none), "unix:/tmp/snug-7/snug.sock");
  setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  if (geteuid() == 0) {
    EXPECT_EQ(DefaultServer(), kServiceSocket);
  }
  unsetenv("XDG_RUNTIME_DIR");
}

TEST_F(CommandLineTest, EveryCommand) {
  EXPECT_TRUE(Parsed({"plan", "f", "--sites"}).sites);
  EXPECT_TRUE(Parsed({"list", "--all"}).all);
  EXPECT_EQ(Parsed({"watch", "j"}).command, "watch");
  EXPECT_TRUE(Parsed({"logs", "j", "--follow"}).follow);
  EXPECT_THAT(Parsed({"cancel", "j", "k"}).jobs, ElementsAre("j", "k"));
  EXPECT_EQ(Parsed({"download", "j", "d"}).directory, "d");
}

TEST_F(CommandLineTest, HelpIsNoMistakeAndDocumentsExitCodes) {
  EXPECT_EQ(Ended({"--help"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("Exit codes: 0 done, 1 an error, 64"));
  EXPECT_EQ(Ended({"submit", "--help"}), 0);
  EXPECT_EQ(Ended({"--version"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("snug 0.1.0\n"));
}

TEST_F(CommandLineTest, MistakesEndWith64AndAreNamed) {
  EXPECT_EQ(Ended({}), 64);
  EXPECT_EQ(Ended({"wathc", "j"}), 64);
  EXPECT_THAT(err_.str(), HasSubstr("no such command: wathc; did you mean watch?"));
  EXPECT_EQ(Ended({"get"}), 64);
  EXPECT_THAT(err_.str(), HasSubstr("JOB is required"));
  EXPECT_EQ(Ended({"get", "a", "b"}), 64);
  EXPECT_EQ(Ended({"list", "--output", "xml"}), 64);
  EXPECT_THAT(err_.str(), HasSubstr("xml not in {table,json}"));
  EXPECT_EQ(Ended({"list", "--nope"}), 64);
}

// A script that asked for JSON gets it for its own mistakes as well, however it spelled the option.
TEST_F(CommandLineTest, MistakesAreJsonForThoseWhoAskedForJson) {
  for (const std::vector<std::string>& line : std::vector<std::vector<std::string>>{
           {"--output", "json", "lits"}, {"get", "--output=json"}, {"-ojson", "download", "j"}}) {
    err_.str("");
    EXPECT_EQ(Ended(line), 64);
    const Json said = Json::parse(err_.str(), nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(said.is_object()) << err_.str();
    EXPECT_EQ(said["error"]["reason"], "USAGE");
    EXPECT_FALSE(said["error"]["message"].get<std::string>().empty());
  }
  err_.str("");
  EXPECT_EQ(Ended({"-o", "json", "-o", "table", "lits"}), 64);
  EXPECT_THAT(err_.str(), HasSubstr("snug: no such command: lits; did you mean list?"));
}

// A person gets the help; a script one line.
TEST_F(CommandLineTest, NoCommandIsAMistakeInOneLineForScripts) {
  EXPECT_EQ(Ended({}), 64);
  EXPECT_THAT(err_.str(), HasSubstr("Exit codes: 0 done"));
  err_.str("");
  EXPECT_EQ(Ended({"--output", "json"}), 64);
  EXPECT_EQ(Json::parse(err_.str())["error"]["message"],
            "no command is given; there are plan, submit, list, get, watch, logs, cancel, pause, "
            "resume, squeeze, relax, devices, open, top, download, checkpoints, artifacts, "
            "datasets, sample, chat, import, export-metrics, plot, shell, update, rerun, extend, "
            "delete, drain, undrain, doctor, backup, token, files");
}

// No daemon: how to start one, with the socket that was asked for.
TEST_F(CommandLineTest, AWrongServerSaysHowToStartADaemon) {
  EXPECT_EQ(client::Run({"list", "--server", "unix:/nonexistent/snug.sock"}, terminal_), 1);
  EXPECT_EQ(err_.str(),
            "snug: cannot reach a daemon at unix:/nonexistent/snug.sock: there is no such socket\n"
            "  Start one:         snugd --socket /nonexistent/snug.sock\n"
            "  or name another:   snug --server unix:PATH COMMAND, or set SNUG_SERVER=unix:PATH\n");
  err_.str("");
  EXPECT_EQ(client::Run({"list", "--server", "localhost:80"}, terminal_), 1);
  EXPECT_THAT(err_.str(), HasSubstr("--server must be unix:PATH"));
  EXPECT_EQ(client::Run({"list", "--server", "unix:/" + std::string(200, 'x')}, terminal_), 1);
  EXPECT_THAT(err_.str(), HasSubstr("a socket's path has at most 107 bytes; this one has 201"));
}

}  // namespace
}  // namespace snug::client
