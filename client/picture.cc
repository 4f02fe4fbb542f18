#include "client/picture.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace snug::client {

TextOptions TextOptionsFor(const Terminal& terminal) {
  TextOptions options;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    options.columns = size.ws_col;
  const char* no_colour = std::getenv("NO_COLOR");
  options.colour = terminal.is_tty && (no_colour == nullptr || *no_colour == '\0');
  return options;
}

absl::Status WritePicture(const std::string& svg, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  file << svg;
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

}  // namespace snug::client
