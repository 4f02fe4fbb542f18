#include "client/table.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace snug::client {
namespace {

// The bytes that continue a UTF-8 character do not count.
bool Begins(char c) { return (c & 0xC0) != 0x80; }

}  // namespace

size_t Width(absl::string_view text) { return std::count_if(text.begin(), text.end(), Begins); }

std::string Clipped(absl::string_view text, size_t width) {
  size_t characters = 0;
  for (size_t i = 0; i < text.size(); ++i)
    if (Begins(text[i]) && characters++ == width) return std::string(text.substr(0, i));
  return std::string(text);
}

std::string Printable(absl::string_view text) {
  std::string safe(text);
  for (char& c : safe) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  // U+0080 to U+009F, which some terminals obey, are C2 80 to C2 9F.
  for (size_t i = 0; i + 1 < safe.size(); ++i) {
    const unsigned char next = safe[i + 1];
    if (safe[i] == '\xC2' && next >= 0x80 && next <= 0x9F) safe[i] = safe[i + 1] = '?';
  }
  return safe;
}

std::string OneLine(absl::string_view text) {
  std::string line;
  for (size_t i = 0; i < text.size(); ++i) {
    // U+0080 to U+009F as well.
    const bool two = text[i] == '\xC2' && i + 1 < text.size() &&
                     static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
                     static_cast<unsigned char>(text[i + 1]) <= 0x9F;
    const auto c = static_cast<unsigned char>(text[i]);
    if (!two && c > 0x20 && c != 0x7F) {
      line.push_back(text[i]);
    } else if (!line.empty() && line.back() != ' ') {
      line.push_back(' ');
    }
    i += two ? 1 : 0;
  }
  return std::string(absl::StripTrailingAsciiWhitespace(line));
}

std::string Shortened(absl::string_view text, size_t width) {
  if (Width(text) <= width || width == 0) return Clipped(text, width);
  return Clipped(text, width - 1) + "…";
}

std::string PrintableLines(absl::string_view text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (std::string& line : lines) {
    std::vector<std::string> parts = absl::StrSplit(line, '\t');
    for (std::string& part : parts) part = Printable(part);
    line = absl::StrJoin(parts, "\t");
  }
  return absl::StrJoin(lines, "\n");
}

Table::Table(std::vector<std::string> header) {
  for (std::string& name : header) {
    right_.push_back(name.front() == '>');
    if (right_.back()) name.erase(0, 1);
  }
  rows_.push_back(std::move(header));
}

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(right_.size());
  for (std::string& cell : cells) cell = Printable(cell);
  rows_.push_back(std::move(cells));
}

void Table::Print(std::ostream& out) const {
  std::vector<size_t> widths(right_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - Width(row[i]), ' ');
      absl::StrAppend(&line, i == 0 ? "" : "  ", right_[i] ? space + row[i] : row[i] + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << "\n";
  }
}

}  // namespace snug::client
