#include "proto/snug/enum_words.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "snug/v1/config.pb.h"
#include "snug/v1/service.pb.h"
#include "snug/v1/store.pb.h"
#include "snug/v1/worker.pb.h"

namespace snug {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

// All enums of the schema's own files, by whole name.
class Enums {
 public:
  Enums() {
    for (const FileDescriptor* file :
         {v1::CreateJobRequest::descriptor()->file(), v1::WorkerResult::descriptor()->file(),
          v1::DaemonConfig::descriptor()->file()})
      AddFile(*file);
  }

  const std::vector<const EnumDescriptor*>& all() const { return all_; }

 private:
  void AddFile(const FileDescriptor& file) {
    if (file.package() != "snug.v1" || !seen_.insert(file.name()).second) return;
    for (int i = 0; i < file.dependency_count(); ++i) AddFile(*file.dependency(i));
    for (int i = 0; i < file.enum_type_count(); ++i) all_.push_back(file.enum_type(i));
    for (int i = 0; i < file.message_type_count(); ++i) AddMessage(*file.message_type(i));
  }

  void AddMessage(const Descriptor& message) {
    for (int i = 0; i < message.enum_type_count(); ++i) all_.push_back(message.enum_type(i));
    for (int i = 0; i < message.nested_type_count(); ++i) AddMessage(*message.nested_type(i));
  }

  std::set<std::string> seen_;
  std::vector<const EnumDescriptor*> all_;
};

// LrSchedulerType: LR_SCHEDULER_TYPE_.
std::string PrefixFor(const std::string& type) {
  std::string prefix;
  for (const char letter : type) {
    if (absl::ascii_isupper(letter) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(letter);
  }
  return prefix + "_";
}

TEST(EnumWordsTest, EveryValueOfTheSchemaBearsItsTypesName) {
  const Enums enums;
  EXPECT_GE(enums.all().size(), 16u);
  for (const EnumDescriptor* type : enums.all()) {
    const std::string prefix = PrefixFor(type->name());
    ASSERT_NE(type->FindValueByNumber(0), nullptr) << type->full_name();
    EXPECT_EQ(type->FindValueByNumber(0)->name(), prefix + "UNSPECIFIED");
    for (int i = 0; i < type->value_count(); ++i)
      EXPECT_TRUE(absl::StartsWith(type->value(i)->name(), prefix)) << type->value(i)->full_name();
  }
}

TEST(EnumWordsTest, EveryWordIsFoundAgain) {
  const Enums enums;
  for (const EnumDescriptor* type : enums.all()) {
    for (int i = 0; i < type->value_count(); ++i) {
      const std::string word = EnumWord(*type->value(i));
      ASSERT_NE(FindEnumWord(*type, word), nullptr) << word;
      EXPECT_EQ(FindEnumWord(*type, word)->number(), type->value(i)->number()) << word;
    }
  }
}

TEST(EnumWordsTest, AWordIsTheNameWithoutItsPrefix) {
  EXPECT_EQ(EnumWord(v1::Job::STATE_RUNNING), "RUNNING");
  EXPECT_EQ(LowerEnumWord(v1::TrainingSpec::LR_SCHEDULER_TYPE_COSINE_WITH_MIN_LR),
            "cosine_with_min_lr");
  EXPECT_EQ(EnumWord(v1::WorkerResult::FAILURE_CLASS_OUT_OF_MEMORY), "OUT_OF_MEMORY");
}

TEST(EnumWordsTest, TheZeroValueKeepsItsWholeName) {
  EXPECT_EQ(EnumWord(v1::Job::STATE_UNSPECIFIED), "STATE_UNSPECIFIED");
  v1::Job::State state = v1::Job::STATE_RUNNING;
  EXPECT_FALSE(ParseEnumWord("UNSPECIFIED", &state));
  EXPECT_EQ(state, v1::Job::STATE_RUNNING);
}

TEST(EnumWordsTest, ANumberOfANewerSchemaIsShownAsANumber) {
  EXPECT_EQ(EnumWord(static_cast<v1::Job::State>(99)), "99");
}

TEST(EnumWordsTest, WordsAreReadInAnyCaseAndNamesWhole) {
  v1::JobSpec::Method method = v1::JobSpec::METHOD_UNSPECIFIED;
  EXPECT_TRUE(ParseEnumWord("lora", &method));
  EXPECT_EQ(method, v1::JobSpec::METHOD_LORA);
  EXPECT_TRUE(ParseEnumWord("METHOD_FULL", &method));
  EXPECT_EQ(method, v1::JobSpec::METHOD_FULL);
  EXPECT_FALSE(ParseEnumWord("METHOD_", &method));
  EXPECT_FALSE(ParseEnumWord("", &method));
}

TEST(EnumWordsTest, TwoWordsMayBeOneValue) {
  v1::TrainingSpec::LrSchedulerType one{}, other{};
  EXPECT_TRUE(ParseEnumWord("wsd", &one));
  EXPECT_TRUE(ParseEnumWord("warmup_stable_decay", &other));
  EXPECT_EQ(one, other);
}

}  // namespace
}  // namespace snug
