#include "client/table.h"

#include <sstream>

#include "gtest/gtest.h"

namespace snug::client {
namespace {

TEST(TableTest, AlignsColumnsAndLeavesNoSpaceAtTheEnd) {
  Table table({"NAME", ">BYTES", "NOTE"});
  table.AddRow({"a", "1", "x"});
  table.AddRow({"longer", "12345678", ""});
  table.AddRow({"b"});
  std::ostringstream out;
  table.Print(out);
  EXPECT_EQ(out.str(),
            "NAME       BYTES  NOTE\n"
            "a              1  x\n"
            "longer  12345678\n"
            "b\n");
}

// A letter of two bytes is one column wide.
TEST(TableTest, CountsCharactersNotBytes) {
  Table table({"NAME", "X"});
  table.AddRow({"zürich", "1"});
  table.AddRow({"berlin", "2"});
  std::ostringstream out;
  table.Print(out);
  EXPECT_EQ(out.str(), "NAME    X\nzürich  1\nberlin  2\n");
}

// Another user's job name must not move the cursor or clear the screen.
TEST(TableTest, ControlCharactersAreShownAsQuestionMarks) {
  EXPECT_EQ(Printable("a\033[2Jb\nc\x7F"), "a?[2Jb?c?");
  EXPECT_EQ(Printable("a\xC2\x9B"
                      "2Jb"),
            "a??2Jb");
  EXPECT_EQ(Printable("zürich §"), "zürich §");
}

}  // namespace
}  // namespace snug::client
