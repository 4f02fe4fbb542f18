#include "client/picture.h"

#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

// librsvg's program is run, not linked: what draws its text brings some forty libraries.
constexpr const char* kDraw = "rsvg-convert";

// Runs it with this file as its standard input; its exit code.
absl::StatusOr<int> Draw(int input, std::string output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const absl::Cleanup destroy = [&] { posix_spawn_file_actions_destroy(&actions); };
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  std::string name = kDraw, zoom = "--zoom=2";
  char* const arguments[] = {name.data(), zoom.data(), output.data(), nullptr};
  pid_t child = 0;
  const int error = posix_spawnp(&child, kDraw, &actions, nullptr, arguments, environ);
  if (error == ENOENT)
    return absl::FailedPreconditionError(absl::StrCat(
        kDraw, " draws a PNG, and is not there: apt-get install librsvg2-bin, or take --svg"));
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot run ", kDraw));
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return absl::ErrnoToStatus(errno, absl::StrCat("cannot await ", kDraw));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TextOptions TextOptionsFor(const Terminal& terminal) {
  TextOptions options;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    options.columns = size.ws_col;
  const char* no_colour = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && absl::string_view(term) == "dumb";
  options.colour = terminal.is_tty && !dumb && (no_colour == nullptr || *no_colour == '\0');
  return options;
}

absl::Status WritePicture(const std::string& svg, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  file << svg;
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

absl::Status WritePng(const std::string& svg, const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> input(std::tmpfile(), &std::fclose);
  if (input == nullptr) return absl::ErrnoToStatus(errno, "cannot open a temporary file");
  if (std::fwrite(svg.data(), 1, svg.size(), input.get()) != svg.size())
    return absl::ErrnoToStatus(errno, "cannot write a temporary file");
  std::rewind(input.get());  // Flushes, too.
  ASSIGN_OR_RETURN(const int code, Draw(fileno(input.get()), absl::StrCat("--output=", path)));
  if (code == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot write ", path, ": ", kDraw, " ended with ", code));
}

}  // namespace snug::client
