// Writes safetensors files, right ones and wrong ones, for the tests of their readers.
#ifndef TESTS_WORKER_PROGRAM_SAFETENSORS_FILES_H_
#define TESTS_WORKER_PROGRAM_SAFETENSORS_FILES_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace snug::program {

// An empty directory of this test's own.
inline std::filesystem::path FreshDirectory() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::filesystem::path dir = std::filesystem::path(::testing::TempDir()) /
                                    (std::string(test->test_suite_name()) + "." + test->name());
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  return dir;
}

inline std::string WriteFile(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::remove(path);  // Some file systems flush a file that is cut and written again.
  std::ofstream(path, std::ios::binary) << content;
  return path.string();
}

inline std::string LittleEndian64(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

inline std::string Safetensors(const std::string& header, size_t data_bytes) {
  return LittleEndian64(header.size()) + header + std::string(data_bytes, '\0');
}

}  // namespace snug::program

#endif  // TESTS_WORKER_PROGRAM_SAFETENSORS_FILES_H_
