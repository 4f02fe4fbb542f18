// Columns of text for people.
#ifndef CLIENT_TABLE_H_
#define CLIENT_TABLE_H_

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace snug::client {

// Text that is safe on a terminal: control characters, which could move its cursor or hide text,
// become '?'.
std::string Printable(absl::string_view text);
// The same, but with lines and tabs.
std::string PrintableLines(absl::string_view text);

// The same on one line: line breaks, other control characters and spaces in a row become a space.
std::string OneLine(absl::string_view text);

// In characters of UTF-8.
size_t Width(absl::string_view text);
// The first so many characters of it.
std::string Clipped(absl::string_view text, size_t width);
// The same, but that the last of them is an ellipsis where some are left out.
std::string Shortened(absl::string_view text, size_t width);

// A header and rows of as many cells; columns two spaces apart. A name that begins with '>' aligns
// its column right.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  void AddRow(std::vector<std::string> cells);
  void Print(std::ostream& out) const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;  // The header is the first.
};

}  // namespace snug::client

#endif  // CLIENT_TABLE_H_
