// A folder in memory for parsers that read files by their names.
#ifndef TESTS_FUZZ_FOLDER_H_
#define TESTS_FUZZ_FOLDER_H_

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

// One of this process; the same in each call.
inline std::string Folder(const std::string& name) {
  const std::string folder = "/dev/shm/snug-fuzz-" + std::to_string(getpid()) + "/" + name;
  std::filesystem::create_directories(folder);
  return folder;
}

inline void Write(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

inline std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

#endif  // TESTS_FUZZ_FOLDER_H_
