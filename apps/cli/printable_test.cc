// What may reach a terminal. Encodings of the characters: Unicode's charts.
#include "printable.h"

#include <gtest/gtest.h>

namespace slm::cli {
namespace {

TEST(Printable, MessagesLoseControlCodes) {
  EXPECT_EQ(Printable("a\nb\tc\x1b[2Jd\x7f", Show::kLine), "a b c [2Jd ");
  EXPECT_EQ(Printable("a\nb\tc\x1b", Show::kLines), "a\nb\tc ");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "2J\xc2\x80\xc2\x9f",
                      Show::kLine),
            " 2J  ");                                                                             // C1: U+009B is CSI
  EXPECT_EQ(Printable("\xc2\xa0\xc3\xa9", Show::kLine), "\xc2\xa0\xc3\xa9");                      // U+00A0, U+00E9
  EXPECT_EQ(Printable("\xe2\x80\xaa\xe2\x80\xae\xe2\x81\xa6\xe2\x81\xa9", Show::kLine), "    ");  // U+202A, 202E, 2066, 2069
  EXPECT_EQ(Printable("\xe2\x80\xa9\xe2\x80\xaf\xe2\x81\xa5", Show::kLine), "\xe2\x80\xa9\xe2\x80\xaf\xe2\x81\xa5");  // their neighbours
}

TEST(Printable, BytesThatAreNotUtf8AreReplaced) {
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(Printable("a\x9b"
                      "b",
                      Show::kLine),
            "a" + r + "b");
  EXPECT_EQ(Printable("\xff", Show::kStream), r);
  EXPECT_EQ(Printable("\xe2\x82", Show::kLine), r + r);                  // cut short
  EXPECT_EQ(Printable("\xc0\x8a", Show::kLine), r + r);                  // overlong line feed
  EXPECT_EQ(Printable("\xed\xa0\x80", Show::kLine), r + r + r);          // surrogate
  EXPECT_EQ(Printable("\xf4\x90\x80\x80", Show::kLine), r + r + r + r);  // above U+10FFFF
  EXPECT_EQ(Printable("\xf0\x9f\x98\x80", Show::kLine), "\xf0\x9f\x98\x80");
}

TEST(Printable, Utf8) {
  EXPECT_TRUE(IsUtf8("") && IsUtf8("a\xc3\xa9\xf0\x9f\x98\x80"));
  EXPECT_FALSE(IsUtf8("a\xc3") || IsUtf8("\x80") || IsUtf8("\xed\xa0\x80"));
}

TEST(Printable, AnswersKeepDirectionsAndLayout) {
  EXPECT_EQ(Printable("a\n\tb\x1b[31m\r\x07\xc2\x9b"
                      "c\xe2\x80\xae",
                      Show::kStream),
            "a\n\tb[31mc\xe2\x80\xae");
  EXPECT_EQ(Printable("", Show::kStream), "");
}

}  // namespace
}  // namespace slm::cli
