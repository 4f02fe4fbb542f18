#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "worker/program/model_config.h"

namespace snug::program {
namespace {

using ::testing::HasSubstr;

// F-44: whatever the number, each field that has it is named, within 10 ms. What JSON has no number
// for is refused by the first one.
TEST(AbsurdConfigTest, AbsurdNumbersAreAllNamedAtOnce) {
  const char* fields[] = {"hidden_size",         "intermediate_size",   "num_hidden_layers",
                          "num_attention_heads", "num_key_value_heads", "vocab_size"};
  const char* absurd[] = {"0",
                          "-1",
                          "-9223372036854775808",
                          "9223372036854775807",
                          "1e19",
                          "0.5",
                          "[4]",
                          "18446744073709551615",
                          "1000000000000",
                          "true",
                          "{}",
                          "\"4\"",
                          "18446744073709551616",
                          "4e-324",
                          "-0.0"};
  for (const std::string value : absurd) {
    std::string text = R"({"model_type": "llama")";
    for (const char* field : fields) text += absl::StrCat(", \"", field, "\": ", value);
    absl::Duration fastest = absl::InfiniteDuration();
    std::string said;
    for (int i = 0; i < 5; ++i) {
      const absl::Time begin = absl::Now();
      said = std::string(ParseModelConfig(text + "}", "config.json").status().message());
      fastest = std::min(fastest, absl::Now() - begin);
    }
    EXPECT_LT(fastest, absl::Milliseconds(10)) << value;
    for (const char* field : fields) EXPECT_THAT(said, HasSubstr(field)) << value;
  }
  for (const char* none : {"1e400", "-1e400"})
    EXPECT_THAT(ParseModelConfig(absl::StrCat(R"({"vocab_size": )", none, "}"), "config.json")
                    .status()
                    .message(),
                HasSubstr("\"vocab_size\": number"));
}

}  // namespace
}  // namespace snug::program
