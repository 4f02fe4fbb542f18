// What another user than the daemon's may have it open, and what he learns of the rest.
#include "server/inspect/file_access.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/server/testing/test_folder.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// There, missing, empty and a folder, where nobody but root may look.
constexpr const char* kHidden[] = {"there.jsonl", "missing.jsonl", "empty.jsonl", "folder"};

constexpr uid_t kNobody = 65534, kStranger = 54321;

class FileAccessTest : public testing::Test {
 protected:
  FileAccessTest() {
    fs::create_directories(dir_ + "/shared/inner");
    fs::create_directories(dir_ + "/shared/closed");
    fs::create_directories(dir_ + "/shared-not");
    Write("shared/open.jsonl", 0644);
    Write("shared/inner/open.jsonl", 0644);
    Write("shared/secret.jsonl", 0600);
    Write("shared/closed/open.jsonl", 0644);
    Write("shared-not/open.jsonl", 0644);
    Write("outside.jsonl", 0644);
    fs::permissions(dir_ + "/shared/closed", fs::perms::owner_all);
    fs::create_symlink("inner/open.jsonl", dir_ + "/shared/link-within.jsonl");
    fs::create_symlink("../outside.jsonl", dir_ + "/shared/link-out.jsonl");
    fs::create_symlink(dir_ + "/shared/open.jsonl", dir_ + "/shared/link-absolute.jsonl");
  }

  void Write(const std::string& name, mode_t mode) {
    std::ofstream(dir_ + "/" + name) << "{}\n";
    chmod((dir_ + "/" + name).c_str(), mode);
  }
  // 0, or why it cannot be opened.
  int Error(const std::string& path, const Principal& who) {
    const int fd = access_.Open(path, who);
    if (fd < 0) return errno;
    close(fd);
    return 0;
  }
  // A folder with what is in kHidden.
  void Hide(const std::string& name) {
    const std::string folder = dir_ + "/" + name;
    fs::create_directories(folder + "/folder");
    Write(name + "/there.jsonl", 0644);
    std::ofstream(folder + "/empty.jsonl").close();
    fs::permissions(folder, fs::perms::owner_all);
  }
  void Link(const std::string& to, const std::string& name) {
    fs::remove(dir_ + "/" + name);
    fs::create_symlink(to, dir_ + "/" + name);
  }
  // What the stranger is told of a job at all times, but for what it calls `name`.
  std::string Told(const v1::JobSpec& spec, const std::string& name) {
    std::string told;
    for (const InputFiles inputs : {InputFiles::kNamed, InputFiles::kNeeded})
      for (const Violation& violation : access_.Check(spec, stranger_, inputs))
        told += violation.field + ": " + violation.message + "\n";
    for (size_t at = told.find(name); at != std::string::npos; at = told.find(name))
      told.replace(at, name.size(), "NAME");
    return told;
  }
  std::string ToldOfDataset(const std::string& name) {
    v1::JobSpec spec;
    spec.set_dataset(dir_ + "/" + name);
    return Told(spec, name);
  }
  int Error(const std::string& name) { return Error(dir_ + "/" + name, stranger_); }
  // Bits of what another user than root runs; 1 where a check fails.
  static int AsNobody(const std::function<int()>& what) {
    const pid_t child = fork();
    if (child == 0) _exit(setresuid(kNobody, kNobody, kNobody) == 0 ? what() : 99);
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  }

  const TestFolder folder_{"access"};
  const std::string dir_ = folder_.path();
  const FileAccess access_{
      {.of_users = {dir_ + "/shared"}, .of_tenants = {{"blue", {dir_ + "/shared"}}}}};
  const Principal stranger_{.uid = kStranger, .gid = kStranger};
};

TEST_F(FileAccessTest, BelowTheRootsWithHisOwnRights) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  EXPECT_EQ(Error("shared/open.jsonl"), 0);
  EXPECT_EQ(Error("shared"), 0);
  EXPECT_EQ(Error("shared/../shared/inner/open.jsonl"), 0);
  EXPECT_EQ(Error("shared/link-within.jsonl"), 0);
  EXPECT_EQ(Error("shared/secret.jsonl"), EACCES);
  EXPECT_EQ(Error("shared/closed/open.jsonl"), EACCES);
  EXPECT_EQ(Error("shared/closed/missing.jsonl"), EACCES);
  EXPECT_EQ(Error("shared/missing.jsonl"), ENOENT);
}

// F-48
TEST_F(FileAccessTest, NothingLeadsOutOfTheRoots) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  for (const char* name :
       {"outside.jsonl", "missing.jsonl", "shared-not/open.jsonl", "shared/../outside.jsonl",
        "shared/link-out.jsonl", "shared/link-absolute.jsonl", "shared/inner/../../outside.jsonl"})
    EXPECT_EQ(Error(name), EXDEV) << name;
  EXPECT_EQ(Error("/etc/shadow", stranger_), EXDEV);
  EXPECT_EQ(Error("/proc/self/environ", stranger_), EXDEV);
}

// F-48: names that are no plain file's, or none at all. Nothing is waited for.
TEST_F(FileAccessTest, TricksWithPathsOpenNothingOfOthers) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  ASSERT_EQ(link((dir_ + "/shared/secret.jsonl").c_str(), (dir_ + "/shared/hard.jsonl").c_str()),
            0);
  EXPECT_EQ(Error("shared/hard.jsonl"), EACCES);
  ASSERT_EQ(mkfifo((dir_ + "/shared/fifo").c_str(), 0600), 0);
  EXPECT_EQ(Error("shared/fifo"), EACCES);
  EXPECT_EQ(Error("shared/" + std::string(4096, 'a')), ENAMETOOLONG);
  EXPECT_EQ(Error("shared/" + std::string(300, 'a')), ENAMETOOLONG);
  const int secret = open((dir_ + "/shared/secret.jsonl").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(secret, 0);
  const std::string magic = "/proc/self/fd/" + std::to_string(secret);
  EXPECT_EQ(Error(magic, stranger_), EXDEV);
  fs::create_symlink(magic, dir_ + "/shared/magic.jsonl");
  EXPECT_THAT(Error("shared/magic.jsonl"), testing::AnyOf(EXDEV, ELOOP));
  close(secret);
  fs::create_symlink("/dev/zero", dir_ + "/shared/zero");
  EXPECT_EQ(Error("shared/zero"), EXDEV);
  fs::create_symlink("loop", dir_ + "/shared/loop");
  EXPECT_EQ(Error("shared/loop"), ELOOP);
  EXPECT_EQ(Error(dir_ + "/shared/open.jsonl/", stranger_), ENOTDIR);
}

// F-48: a folder on the way is exchanged for a link that leads out, again and again, while it is
// opened a million times, or as often as SNUG_RACE_SECONDS allow (default 2).
TEST_F(FileAccessTest, AFolderThatIsExchangedForALinkLeadsNowhere) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  fs::create_directories(dir_ + "/outside");
  Write("outside/open.jsonl", 0644);
  fs::create_symlink("../outside", dir_ + "/shared/other");
  struct stat outside = {};
  ASSERT_EQ(stat((dir_ + "/outside/open.jsonl").c_str(), &outside), 0);
  std::atomic<bool> stop = false;
  int64_t exchanges = 0;
  std::thread exchanging([&] {
    const std::string a = dir_ + "/shared/inner", b = dir_ + "/shared/other";
    for (; !stop; ++exchanges)
      if (renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) != 0) return;
  });
  const char* given = getenv("SNUG_RACE_SECONDS");
  const absl::Time end = absl::Now() + absl::Seconds(given == nullptr ? 2 : atoi(given));
  int64_t opened = 0, refused = 0, escapes = 0;
  for (int i = 0; i < 1'000'000 && absl::Now() < end; ++i) {
    const int fd = access_.Open(dir_ + "/shared/inner/open.jsonl", stranger_);
    struct stat found = {};
    if (fd < 0)
      ++refused;
    else
      ++(fstat(fd, &found) == 0 && found.st_ino == outside.st_ino ? escapes : opened);
    if (fd >= 0) close(fd);
  }
  stop = true;
  exchanging.join();
  EXPECT_EQ(escapes, 0);
  EXPECT_GT(opened, 100);  // Both were met.
  EXPECT_GT(refused, 100);
  EXPECT_GT(exchanges, 1000);
}

TEST_F(FileAccessTest, TheDaemonsOwnUserMayOpenAnything) {
  EXPECT_EQ(Error(dir_ + "/outside.jsonl", DaemonPrincipal()), 0);
  EXPECT_EQ(Error(dir_ + "/shared/secret.jsonl", DaemonPrincipal()), 0);
}

// He is no user of this machine: his roots are his rights, and links do not lead out of them.
TEST_F(FileAccessTest, ATenantHasWhatLiesBelowItsRoots) {
  const Principal blue{.uid = 65534, .gid = 65534, .tenant = "blue"};
  const Principal red{.uid = 65534, .gid = 65534, .tenant = "red"};
  for (const char* name : {"shared/open.jsonl", "shared/secret.jsonl", "shared/closed/open.jsonl",
                           "shared/link-within.jsonl"}) {
    EXPECT_EQ(Error(dir_ + "/" + name, blue), 0) << name;
    EXPECT_EQ(Error(dir_ + "/" + name, red), EXDEV) << name;
  }
  for (const char* name : {"outside.jsonl", "shared/link-out.jsonl", "shared/link-absolute.jsonl",
                           "shared/../outside.jsonl", "shared-not/open.jsonl"})
    EXPECT_EQ(Error(dir_ + "/" + name, blue), EXDEV) << name;
  v1::Job job;
  job.set_owner(blue.name());
  EXPECT_EQ(Error(dir_ + "/shared/open.jsonl", OwnerOf(job)), 0);
  EXPECT_EQ(Error(dir_ + "/outside.jsonl", OwnerOf(job)), EXDEV);
}

// This thread has its rights back, and its groups.
TEST_F(FileAccessTest, RightsAreTakenForTheOpeningAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  EXPECT_EQ(Error("shared/secret.jsonl"), EACCES);
  std::ifstream file(dir_ + "/shared/secret.jsonl");
  EXPECT_TRUE(file.good());
}

// A group that he is in lets him read, one that he is not in does not.
TEST_F(FileAccessTest, HisGroupsCount) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  const std::string path = dir_ + "/shared/secret.jsonl";
  ASSERT_EQ(chown(path.c_str(), 0, 4711), 0);
  chmod(path.c_str(), 0640);
  EXPECT_EQ(Error(path, stranger_), EACCES);
  EXPECT_EQ(Error(path, {.uid = kStranger, .gid = kStranger, .groups = {4711}}), 0);
}

// What cannot be seen cannot be told from what is not there.
TEST_F(FileAccessTest, RefusalsDoNotTellWhatIsThere) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  const std::string missing = ToldOfDataset("missing.jsonl");
  EXPECT_THAT(missing, HasSubstr("is not below the folders"));
  EXPECT_EQ(ToldOfDataset("outside.jsonl"), missing);
  EXPECT_EQ(ToldOfDataset("shared/link-out.jsonl"), missing);
  EXPECT_EQ(ToldOfDataset("shared/closed/open.jsonl"),
            ToldOfDataset("shared/closed/missing.jsonl"));
  fs::create_directories(dir_ + "/shared/adapter");
  Hide("outside");
  Hide("shared/closed");
  for (const std::string hidden : {"../outside", "closed"}) {
    Link(hidden, "shared/link");
    Link(hidden, "shared/b[1]");
    std::set<std::string> of_adapters, of_links, of_patterns, of_brackets, of_names;
    for (const std::string name : kHidden) {
      Link("../" + hidden + "/" + name, "shared/adapter/adapter_config.json");
      v1::JobSpec spec;
      spec.set_dataset(dir_ + "/shared/open.jsonl");
      spec.mutable_lora()->set_init_adapter(dir_ + "/shared/adapter");
      of_adapters.insert(Told(spec, "shared/adapter"));
      of_links.insert(ToldOfDataset("shared/link/" + name.substr(0, 1) + "*"));
      of_patterns.insert(ToldOfDataset("shared/l*/" + name.substr(0, 1) + "*"));
      of_brackets.insert(ToldOfDataset("shared/b[1]/" + name));
      Link(hidden + "/" + name, "shared/c[1]");
      of_names.insert(ToldOfDataset("shared/c[1]"));
    }
    EXPECT_THAT(of_adapters, ElementsAre(HasSubstr("spec.lora.init_adapter"))) << hidden;
    for (const auto& told : {of_links, of_patterns, of_brackets, of_names})
      EXPECT_THAT(told, ElementsAre(HasSubstr("spec.dataset"))) << hidden;
    EXPECT_THAT(of_patterns, ElementsAre(HasSubstr("in the last part of a pattern"))) << hidden;
  }
}

TEST_F(FileAccessTest, EveryPathOfAJobIsLookedAt) {
  v1::JobSpec spec;
  spec.set_model("/a");
  spec.set_dataset("/b");
  spec.set_eval_dataset("/c");
  spec.mutable_lora()->set_init_adapter("/d");
  EXPECT_EQ(access_.Check(spec, stranger_).size(), 4u);
  EXPECT_EQ(access_.Check(spec, stranger_, InputFiles::kDone).size(), 1u);
  spec.set_model("some-job-1a2b3c");
  EXPECT_EQ(access_.Check(spec, stranger_).size(), 3u);
  EXPECT_EQ(access_.Check(spec, DaemonPrincipal()).size(), 0u);
}

// A folder or a pattern is all its files, wherever links among them lead.
TEST_F(FileAccessTest, FilesOfFoldersAndPatternsAreLookedAt) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  const auto refusals = [&](const std::string& name) {
    v1::JobSpec spec;
    spec.add_datasets()->set_path(dir_ + "/" + name);
    return access_.Check(spec, stranger_);
  };
  fs::create_directories(dir_ + "/shared/inner/deep");
  Write("shared/inner/deep/b[1].jsonl", 0644);
  Link("../../open.jsonl", "shared/inner/deep/within.jsonl");
  Link("missing.jsonl", "shared/inner/to-nothing.jsonl");
  Link("..", "shared/inner/deep/loop");
  for (const char* opened : {"shared/inner", "shared/inner/deep/*.jsonl", "shared/open*.jsonl",
                             "shared/inner/deep/b[1].jsonl", "shared/inner/deep/b?1].jsonl"})
    EXPECT_TRUE(refusals(opened).empty()) << opened;
  Write("shared/inner/b1.jsonl", 0644);
  EXPECT_TRUE(refusals("shared/inner/b[1].jsonl").empty());
  EXPECT_EQ(refusals("shared/inner/c[1].jsonl").at(0).message,
            "no file is called " + dir_ + "/shared/inner/c[1].jsonl");
  for (const char* refused : {"shared", "shared/*.jsonl", "shared/link-out*", "*.jsonl"}) {
    const std::vector<Violation> found = refusals(refused);
    ASSERT_EQ(found.size(), 1u) << refused;
    EXPECT_EQ(found[0].field, "spec.datasets[0]");
    EXPECT_THAT(found[0].message, testing::Not(HasSubstr("secret")));
  }
}

// A daemon that is not root cannot take anybody's rights: it looks at the bits on the way itself.
TEST_F(FileAccessTest, ADaemonThatIsNotRootHeedsTheBits) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  fs::permissions(dir_, fs::perms(0755));
  ASSERT_EQ(chown((dir_ + "/shared/secret.jsonl").c_str(), kNobody, kNobody), 0);
  ASSERT_EQ(chown((dir_ + "/shared/closed").c_str(), kNobody, kNobody), 0);
  EXPECT_EQ(AsNobody([&] { return Error("shared/open.jsonl"); }), 0);
  EXPECT_EQ(AsNobody([&] { return Error("shared/secret.jsonl"); }), EACCES);
  EXPECT_EQ(AsNobody([&] { return Error("shared/closed/open.jsonl"); }), EACCES);
  EXPECT_EQ(AsNobody([&] { return Error("shared/missing.jsonl"); }), ENOENT);
  EXPECT_EQ(AsNobody([&] { return Error("shared/closed/missing.jsonl"); }), EACCES);
  for (const char* name : {"open.jsonl", "missing.jsonl"}) {  // Of what a link leads to, nothing.
    const std::string link = dir_ + "/shared/to-" + name;
    fs::create_symlink(std::string("closed/") + name, link);
    EXPECT_EQ(AsNobody([&] { return Error(link, stranger_); }), EACCES) << name;
  }
  EXPECT_EQ(AsNobody([&] { return Error("outside.jsonl"); }), EXDEV);
  EXPECT_EQ(AsNobody([&] { return Error(dir_ + "/shared/secret.jsonl", DaemonPrincipal()); }), 0);
}

}  // namespace
}  // namespace snug::server
