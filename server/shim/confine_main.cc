// snug-confine [--read PATH]... [--write PATH]... PROGRAM ARGUMENT...: becomes the program, which
// reads what strangers bring, with fewer rights (server/shim/confine.h): no sockets, no
// capabilities, none of the calls by which one looks into processes or changes the machine, and
// where a path is given, no files but those below the ones that are.
//
// Root leaves the network as well, and opens others' files as anybody may: the program must be one
// that root owns or anybody may start. Whatever else the kernel does not grant ends it with exit
// code 1, but for the rule of files: a kernel without it says so in a line on stderr, and the
// program is started all the same.
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "server/shim/confine.h"

namespace {

constexpr int kExitUsage = 64;  // EX_USAGE
constexpr int kExitFailed = 1;

int Fail(const char* what, int error) {
  fprintf(stderr, "snug-confine: %s: %s\n", what, strerror(error));
  return kExitFailed;
}

// 0, or the exit code.
int GiveUp(const snug::shim::Files& files) {
  unshare(CLONE_NEWNET);  // Not everybody's, and not needed where there are no sockets.
  if (const int error = snug::shim::GiveUpPrivileges(); error != 0)
    return Fail("cannot give up privileges", error);
  if (!files.read.empty() || !files.write.empty()) {
    const int error = snug::shim::RefuseFilesBut(files);
    if (error == ENOSYS || error == EOPNOTSUPP)
      fprintf(stderr, "note: this kernel keeps no files from it (no Landlock)\n");
    else if (error != 0)
      return Fail("cannot refuse files", error);
  }
  if (const int error = snug::shim::DropCapabilities(); error != 0)
    return Fail("cannot drop capabilities", error);
  if (const int error = snug::shim::RefuseCalls(snug::shim::Sockets::kNone); error != 0)
    return Fail("cannot refuse system calls", error);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  snug::shim::Files files;
  int at = 1;
  for (; at + 1 < argc; at += 2) {
    const std::string option = argv[at];
    if (option != "--read" && option != "--write") break;
    (option == "--read" ? files.read : files.write).emplace_back(argv[at + 1]);
  }
  if (at >= argc || argv[at][0] == '-') {
    fprintf(stderr, "usage: snug-confine [--read PATH]... [--write PATH]... PROGRAM ...\n");
    return kExitUsage;
  }
  if (const int failed = GiveUp(files); failed != 0) return failed;
  execvp(argv[at], argv + at);
  return Fail(argv[at], errno);
}
