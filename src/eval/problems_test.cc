// Problems read from the published shapes, the numbers of answers, where answers end, and the program that a HumanEval answer becomes.
#include "eval/problems.h"

#include <gtest/gtest.h>

namespace slm::eval {
namespace {

TEST(Problems, OfOurOwnShape) {
  const auto p = ReadProblems("\n{\"prompt\":\"2 + 2 =\",\"answer\":[\"4\",\"four\"]}\r\n{\"prompt\":\"p\",\"answer\":\"\"}\n");
  ASSERT_TRUE(p.ok()) << p.error().message();
  ASSERT_EQ(p.value().size(), 2u);
  EXPECT_EQ(p.value()[0].kind, ProblemKind::kText);
  EXPECT_EQ(p.value()[0].answers, (std::vector<std::string>{"4", "four"}));
  EXPECT_EQ(ReadProblems("{\"prompt\":\"p\",\"answer\":\"\"}\n{", 1).value().size(), 1u);
}

TEST(Problems, OfGsm8k) {
  const auto p = ReadProblems(R"({"question": "How many?", "answer": "It takes 2/2=<<2/2=1>>1.\n#### 1,003"})");
  ASSERT_TRUE(p.ok()) << p.error().message();
  EXPECT_EQ(p.value()[0].kind, ProblemKind::kNumber);
  EXPECT_EQ(p.value()[0].prompt, "Question: How many?\nAnswer:");
  EXPECT_EQ(p.value()[0].answers, (std::vector<std::string>{"1003"}));
  EXPECT_EQ(p.value()[0].solution, " It takes 2/2=<<2/2=1>>1.\n#### 1,003");
}

TEST(Problems, OfHumanEval) {
  const auto p = ReadProblems(R"({"task_id": "x/0", "prompt": "def f():\n", "entry_point": "f", "canonical_solution": "    return 1\n",)"
                              R"("test": "def check(c):\n    assert c() == 1\n"})");
  ASSERT_TRUE(p.ok()) << p.error().message();
  EXPECT_EQ(p.value()[0].kind, ProblemKind::kCode);
  EXPECT_EQ(TestProgram(p.value()[0], "    return 1\n", "print('passed')"),
            "def f():\n    return 1\n\n\ndef check(c):\n    assert c() == 1\n\n\ncheck(f)\nprint('passed')\n");
}

TEST(Problems, BadLinesAreNamed) {
  const std::string good = "{\"prompt\":\"p\",\"answer\":\"a\"}\n";
  for (const char* bad :
       {"{", "[]", "{}", R"({"prompt":1,"answer":"a"})", R"({"prompt":"p","answer":[]})", R"({"prompt":"p","answer":[1]})",
        R"({"prompt":"p"})", R"({"question":"q","answer":"no mark"})", R"({"question":"q","answer":"#### many"})",
        R"({"question":"q","answer":"#### 3"})", R"({"prompt":"p","test":"t","entry_point":"f(); import os"})",
        R"({"prompt":"p","test":"t","entry_point":""})", R"({"prompt":"p","test":"t"})"}) {
    SCOPED_TRACE(bad);
    const auto p = ReadProblems(good + bad);
    ASSERT_FALSE(p.ok());
    EXPECT_EQ(p.error().code(), Code::kCorrupt);
    EXPECT_NE(p.error().message().find("line 2"), std::string::npos) << p.error().message();
  }
  EXPECT_EQ(ReadProblems(" \n").error().code(), Code::kInvalidArgument);
}

TEST(Numbers, AreNormal) {
  const auto is = [](const char* from, const char* to) { EXPECT_EQ(Normalised(from), to) << from; };
  is("$1,234.50", "1234.5");
  is("007", "7");
  is("-0.0", "0");
  is("18.", "18");
  is("-$5", "-5");
  is(".5", "0.5");
  is("1.2.3", "");
  is("", "");
  is("-", "");
  is("ten", "");
}

TEST(Numbers, AfterTheMark) {
  EXPECT_EQ(MarkedNumber("a 5\n#### 18"), "18");
  EXPECT_EQ(MarkedNumber("#### $2,050.00 in all, #### 3"), "2050");
  EXPECT_EQ(MarkedNumber("####-7"), "-7");
  EXPECT_EQ(MarkedNumber("#### nothing 4"), "");
  EXPECT_EQ(MarkedNumber("18"), "");
  EXPECT_EQ(MarkedNumber("####"), "");
}

TEST(Numbers, TheLastOne) {
  EXPECT_EQ(LastNumber("16 - 3 - 4 = 9 eggs, 9 * $2 = $18."), "18");
  EXPECT_EQ(LastNumber("It is 1,200 then"), "1200");
  EXPECT_EQ(LastNumber("5-3"), "3");
  EXPECT_EQ(LastNumber("it fell to -4"), "-4");
  EXPECT_EQ(LastNumber("12.50"), "12.5");
  EXPECT_EQ(LastNumber("none"), "");
}

}  // namespace
}  // namespace slm::eval
