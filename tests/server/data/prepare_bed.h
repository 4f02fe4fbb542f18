// A folder with a tiny model and rows, and jobs that snug-prepare makes them ready for.
#ifndef TESTS_SERVER_DATA_PREPARE_BED_H_
#define TESTS_SERVER_DATA_PREPARE_BED_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "server/data/prepare.h"
#include "server/job/check_spec.h"
#include "tests/server/testing/test_folder.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::server {

class PrepareBed : public testing::Test {
 protected:
  PrepareBed() {
    std::filesystem::create_directories(dir_ + "/datasets");
    WriteTinyModel(dir_ + "/model");
    WriteTinyDataset(dir_ + "/train.jsonl", 10, 20);
    spec_.set_dataset(dir_ + "/train.jsonl");
    spec_.set_method(v1::JobSpec::METHOD_LORA);
    FillDefaults(spec_, 128);
  }

  // The real script, or a shell script in its place.
  Preparer With(const std::string& shell = "", absl::Duration timeout = absl::Minutes(1)) {
    PrepareSettings settings{.confine = std::string(std::getenv("SNUG_BIN_DIR")) + "/snug-confine",
                             .python = std::getenv("SNUG_PYTHON"),
                             .script = std::getenv("SNUG_PREPARE"),
                             .datasets_dir = dir_ + "/datasets",
                             .timeout = timeout};
    if (!shell.empty()) {
      // Called as `sh -B script ...`: -B means something else there, so a wrapper drops it.
      WriteText(dir_ + "/python", "#!/bin/sh\nshift 2\n" + shell + "\n");
      std::filesystem::permissions(dir_ + "/python", std::filesystem::perms::owner_all);
      settings.python = dir_ + "/python";
    }
    return Preparer(settings);
  }
  absl::StatusOr<PreparedFolders> Prepare(Preparer& preparer) {
    return preparer.Prepare(spec_, dir_ + "/model", {});
  }

  const TestFolder folder_{"prepare"};
  const std::string dir_ = folder_.path();
  v1::JobSpec spec_;
};

}  // namespace snug::server

#endif  // TESTS_SERVER_DATA_PREPARE_BED_H_
