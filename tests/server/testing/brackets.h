// Files that open arrays and never close one.
#ifndef TESTS_SERVER_TESTING_BRACKETS_H_
#define TESTS_SERVER_TESTING_BRACKETS_H_

#include <cstddef>
#include <fstream>
#include <string>

namespace snug::server {

inline constexpr size_t kManyBrackets = size_t{200} << 20;

inline void WriteBrackets(const std::string& path, size_t bytes = kManyBrackets) {
  const std::string some(size_t{1} << 20, '[');
  std::ofstream file(path, std::ios::binary);
  for (size_t written = 0; written < bytes; written += some.size()) file << some;
}

// As deep as a file of so many bytes can be, and whole.
inline std::string Nested(size_t bytes) {
  return std::string(bytes / 2, '[') + std::string(bytes / 2, ']');
}

}  // namespace snug::server

#endif  // TESTS_SERVER_TESTING_BRACKETS_H_
