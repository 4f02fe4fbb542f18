// A folder that is there as long as the object is.
#ifndef TESTS_SERVER_TESTING_TEST_FOLDER_H_
#define TESTS_SERVER_TESTING_TEST_FOLDER_H_

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace snug::server {

// Its name is no other folder's: a process that a test left behind may still write into its own,
// which then stays. Other users may look into it.
class TestFolder {
 public:
  explicit TestFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path().string() + "/" + name + "-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr || chmod(path_.c_str(), 0755) != 0) abort();
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace snug::server

#endif  // TESTS_SERVER_TESTING_TEST_FOLDER_H_
