// Where a picture goes: into the terminal as it is, or into a file.
#ifndef CLIENT_PICTURE_H_
#define CLIENT_PICTURE_H_

#include <string>

#include "absl/status/status.h"
#include "client/chart.h"
#include "client/command_line.h"

namespace snug::client {

// As wide as the terminal; in colours where it has them (TERM is not dumb) and NO_COLOR is not set.
TextOptions TextOptionsFor(const Terminal& terminal);

absl::Status WritePicture(const std::string& svg, const std::string& path);

// As PNG, of twice as many pixels. FAILED_PRECONDITION: rsvg-convert, which draws it, is not there.
absl::Status WritePng(const std::string& svg, const std::string& path);

}  // namespace snug::client

#endif  // CLIENT_PICTURE_H_
