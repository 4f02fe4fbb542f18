// Every way a checkpoint can be damaged is found, and the error names the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>
#include <utility>

#include "tests/worker/checkpoint/testbed.h"
#include "worker/checkpoint/checkpoint.h"

namespace snug::checkpoint {
namespace {

using testing::HasSubstr;

constexpr const char* kFiles[] = {"weights.safetensors", "optimizer.safetensors", "MANIFEST.json"};

class CorruptionTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto saved =
        Save(folder_.path(), StateAt(40), SmallWeights(1.0f).list(), SmallOptimizer(1.0f).list());
    SNUG_ASSERT_OK(saved);
    path_ = saved->path;
  }

  std::string PathOf(const std::string& file) const { return path_ + "/" + file; }

  // The checkpoint is refused as damaged, both ways, and the message names `file`.
  void ExpectDamaged(const std::string& file) const {
    const auto state = Verify(path_);
    ASSERT_EQ(state.status().code(), absl::StatusCode::kDataLoss) << state.status();
    EXPECT_THAT(std::string(state.status().message()), HasSubstr(PathOf(file)));
    Tensors weights = SmallWeights(0.0f), optimizer = SmallOptimizer(0.0f);
    EXPECT_EQ(Restore(path_, weights.list(), optimizer.list()).status(), state.status());
    EXPECT_EQ(weights.f32(0), SmallWeights(0.0f).f32(0)) << "tensors were touched";
  }

  void Flip(const std::string& file, int64_t place, char mask) const {
    std::fstream open(PathOf(file), std::ios::binary | std::ios::in | std::ios::out);
    const char flipped = static_cast<char>(open.seekg(place).peek()) ^ mask;
    open.seekp(place).put(flipped);
  }

  // Puts `text` in the file's place for one look at the checkpoint.
  void ExpectDamagedWith(const std::string& file, const std::string& text) const {
    const std::string whole = ReadText(PathOf(file));
    ASSERT_NE(text, whole);
    WriteText(PathOf(file), text);
    ExpectDamaged(file);
    WriteText(PathOf(file), whole);
  }

  TempFolder folder_;
  std::string path_;
};

// F-24: one bit of every byte of every file: length field, header, padding, each tensor, manifest.
TEST_F(CorruptionTest, FindsAFlippedBitInEveryByte) {
  std::mt19937 random(1);
  for (const char* file : kFiles) {
    const auto bytes = static_cast<int64_t>(std::filesystem::file_size(PathOf(file)));
    for (int64_t i = 0; i < bytes; ++i) {
      const char mask = static_cast<char>(1 << random() % 8);
      Flip(file, i, mask);
      ExpectDamaged(file);
      Flip(file, i, mask);
      if (HasFatalFailure()) FAIL() << file << ", byte " << i;
    }
  }
  SNUG_ASSERT_OK(Verify(path_));
}

TEST_F(CorruptionTest, FindsAFileCutOrGrown) {
  for (const char* file : kFiles) {
    const std::string whole = ReadText(PathOf(file));
    for (const size_t bytes :
         {size_t{0}, size_t{1}, size_t{8}, whole.size() / 2, whole.size() - 1}) {
      ExpectDamagedWith(file, whole.substr(0, bytes));
    }
    ExpectDamagedWith(file, whole + '\0');
    ExpectDamagedWith(file, whole + whole);
  }
}

TEST_F(CorruptionTest, FindsSwappedFiles) {
  const std::string weights = ReadText(PathOf("weights.safetensors"));
  const std::string optimizer = ReadText(PathOf("optimizer.safetensors"));
  WriteText(PathOf("weights.safetensors"), optimizer);
  WriteText(PathOf("optimizer.safetensors"), weights);
  ExpectDamaged("optimizer.safetensors");
}

// Sound by itself, but of another step: only the hash can tell.
TEST_F(CorruptionTest, FindsAFileOfAnotherCheckpoint) {
  const auto other =
      Save(folder_.path(), StateAt(50), SmallWeights(2.0f).list(), SmallOptimizer(1.0f).list());
  SNUG_ASSERT_OK(other);
  ExpectDamagedWith("weights.safetensors", ReadText(other->path + "/weights.safetensors"));
  ExpectDamagedWith("MANIFEST.json", ReadText(other->path + "/MANIFEST.json"));
}

// The step, the seed and a size changed by hand: valid JSON, wrong all the same.
TEST_F(CorruptionTest, FindsAnEditedManifest) {
  const std::string whole = ReadText(PathOf("MANIFEST.json"));
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"\"step\": 40", "\"step\": 41"},
        {"18446744073709551557", "18446744073709551556"},
        {"\"micro_batch\": 17", "\"micro_batch\": 16"},
        {"\"bytes\": ", "\"bytes\": 1"},
        {"\n}\n", "\n} \n"},
        {"\n}\n", "\n}"}}) {
    const size_t place = whole.find(from);
    ASSERT_NE(place, std::string::npos) << from;
    std::string edited = whole;
    edited.replace(place, from.size(), to);
    ExpectDamagedWith("MANIFEST.json", edited);
  }
}

TEST_F(CorruptionTest, FindsAMissingFile) {
  for (const char* file : kFiles) {
    std::filesystem::rename(PathOf(file), PathOf("aside"));
    ExpectDamaged(file);
    std::filesystem::rename(PathOf("aside"), PathOf(file));
  }
}

// F-26: a link, even to the very bytes, could be turned later; a pipe would wait for ever.
TEST_F(CorruptionTest, FindsALinkOrAPipeInAFilesPlace) {
  for (const char* file : kFiles) {
    std::filesystem::rename(PathOf(file), folder_ / "aside");
    std::filesystem::create_symlink(folder_ / "aside", PathOf(file));
    ExpectDamaged(file);
    std::filesystem::remove(PathOf(file));
    ASSERT_EQ(mkfifo(PathOf(file).c_str(), 0600), 0);
    ExpectDamaged(file);
    std::filesystem::remove(PathOf(file));
    std::filesystem::rename(folder_ / "aside", PathOf(file));
  }
  std::filesystem::rename(path_, folder_ / "aside");
  std::filesystem::create_symlink(folder_ / "aside", path_);
  EXPECT_EQ(Verify(path_).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(CorruptionTest, FindsAFolderRenamedToAnotherStep) {
  std::filesystem::rename(path_, folder_ / "step-000041.e1");
  path_ = folder_ / "step-000041.e1";
  ExpectDamaged("MANIFEST.json");
}

}  // namespace
}  // namespace snug::checkpoint
