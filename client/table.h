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
