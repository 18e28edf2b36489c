// What is taken over of a broken-off file, and what never is: other work, damaged bytes, files that are none of ours.
#include "work/work_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace slm::cli {
namespace {
namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Work : public ::testing::Test {
 protected:
  Work() {
    folder_ = fs::path(::testing::TempDir()) / ("work_file_test_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    out_ = (folder_ / "m.gguf").string();
    io_.out = io_.err = [this](std::string_view text) {
      said_ += text;
      return true;
    };
    io_.cancel = &cancel_;
  }
  ~Work() override { fs::remove_all(folder_); }

  static std::string Text(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  static void Put(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
  static std::span<const std::byte> Bytes(const std::string& s) { return std::as_bytes(std::span(s.data(), s.size())); }

  // A file of a header and tensors "aa", "bbb", "c…", as WriteGguf goes about it; stops before tensor `until`. Returns how many were
  // written.
  int Write(WorkFile& w, size_t until) {
    EXPECT_TRUE(w.Write(Bytes("HEAD")).ok());
    EXPECT_TRUE(w.Begun().ok());
    int written = 0;
    bool taken = true;
    for (size_t i = 0; i < until; ++i) {
      const std::string data(i + 2, static_cast<char>('a' + i));
      if (taken && w.Finished(i)) {
        EXPECT_EQ(w.Finished(i)->name, "t" + std::to_string(i));
        EXPECT_TRUE(w.Skip(data.size()).ok());
        continue;
      }
      taken = false;
      ++written;
      EXPECT_TRUE(w.Write(Bytes(data)).ok());
      EXPECT_TRUE(w.Finish({"t" + std::to_string(i), DType::kF32, DType::kQ4_0, 0.1 * static_cast<double>(i)}).ok());
    }
    return written;
  }
  std::unique_ptr<WorkFile> Open(char identity = 'a') {
    auto w = WorkFile::Open(out_, std::string(64, identity), io_);
    EXPECT_TRUE(w.ok()) << w.error().message();
    return w.ok() ? w.Take() : nullptr;
  }

  fs::path folder_;
  std::string out_, said_;
  CancelFlag cancel_{false};
  Io io_;
};
const std::string kWhole = "HEADaabbbcccc";

TEST_F(Work, GoesOnWhereItStopped) {
  EXPECT_EQ(Write(*Open(), 2), 2);
  Put(out_ + ".part", Text(out_ + ".part") + "half of a ten");  // a tensor that was not finished
  auto again = Open();
  EXPECT_EQ(again->finished(), 2u);
  EXPECT_EQ(again->Finished(1)->error, 0.1);
  EXPECT_EQ(Write(*again, 3), 1);
  ASSERT_TRUE(again->Commit().ok());
  EXPECT_EQ(Text(out_), kWhole);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1) << "work files are gone";
}

// Cut at any byte, the journal and the file make a right file.
TEST_F(Work, WhateverIsMissing) {
  Write(*Open(), 3);
  const std::string part = Text(out_ + ".part"), journal = Text(out_ + ".part.journal");
  for (size_t n = 0; n <= journal.size(); ++n)
    for (const size_t m : {size_t{0}, size_t{5}, part.size() - 1, part.size()}) {
      Put(out_ + ".part.journal", journal.substr(0, n));
      Put(out_ + ".part", part.substr(0, m));
      auto w = Open();
      ASSERT_TRUE(w) << n << " " << m;
      Write(*w, 3);
      ASSERT_TRUE(w->Commit().ok());
      ASSERT_EQ(Text(out_), kWhole) << n << " " << m;
    }
}

TEST_F(Work, DamagedBytesAreNotBelieved) {
  Write(*Open(), 3);
  std::string part = Text(out_ + ".part");
  part[6] = 'X';  // of the second tensor
  Put(out_ + ".part", part);
  auto w = Open();
  EXPECT_EQ(w->finished(), 1u);
  EXPECT_EQ(Write(*w, 3), 2);
  ASSERT_TRUE(w->Commit().ok());
  EXPECT_EQ(Text(out_), kWhole);
}

TEST_F(Work, OfAnotherIdentityIsThrownAway) {
  Write(*Open('a'), 3);
  auto w = Open('b');
  EXPECT_EQ(w->finished(), 0u);
  EXPECT_THAT(said_, HasSubstr("written anew"));
  EXPECT_EQ(Write(*w, 3), 3);
  ASSERT_TRUE(w->Commit().ok());
  EXPECT_EQ(Text(out_), kWhole);
}

// Keys of another length: what follows them is elsewhere.
TEST_F(Work, WithAnotherHeaderNothingIsTakenOver) {
  Write(*Open(), 3);
  auto w = Open();
  ASSERT_TRUE(w->Write(Bytes("LONGER")).ok());
  ASSERT_TRUE(w->Begun().ok());
  EXPECT_EQ(w->Finished(0), nullptr);
}

TEST_F(Work, FilesOfOthersStay) {
  const auto refused = [&](const std::string& path) {
    auto w = WorkFile::Open(out_, std::string(64, 'a'), io_);
    ASSERT_FALSE(w.ok());
    EXPECT_EQ(w.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(w.error().message(), HasSubstr(path));
  };
  Put(out_ + ".part", "somebody's");
  refused(out_ + ".part");
  EXPECT_EQ(Text(out_ + ".part"), "somebody's");
  Put(out_ + ".part.journal", "notes of a day\n");
  refused(out_ + ".part.journal");
  EXPECT_EQ(Text(out_ + ".part.journal"), "notes of a day\n");
  fs::remove(out_ + ".part");
  fs::remove(out_ + ".part.journal");
  Put((folder_ / "other").string(), "precious");
  fs::create_symlink(folder_ / "other", out_ + ".part");
  refused(out_ + ".part");
  Put(out_ + ".part.journal", "");
  refused(out_ + ".part");
  EXPECT_EQ(Text((folder_ / "other").string()), "precious");
}

TEST_F(Work, OneRunAtATime) {
  const auto first = Open();
  const auto second = WorkFile::Open(out_, std::string(64, 'a'), io_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), Code::kUnavailable);
}

TEST_F(Work, StopsWhenInterruptedAndKeepsWhatIsDone) {
  {
    auto w = Open();
    Write(*w, 2);
    cancel_ = true;
    EXPECT_EQ(w->Write(Bytes("cccc")).error().code(), Code::kCancelled);
  }
  cancel_ = false;
  EXPECT_EQ(Open()->finished(), 2u);
}

TEST_F(Work, DiscardTakesAllAway) {
  auto w = Open();
  Write(*w, 2);
  w->Discard();
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST(Journals, RoundTrip) {
  const JournalRow row{{"blk.0 \"x\"\n", DType::kBF16, DType::kQ4_K, 0.1234567890123456789}, 77, std::string(64, 'e')};
  const auto j = ReadJournal(JournalHead(std::string(64, 'd'), 5) + JournalLine(row));
  ASSERT_TRUE(j);
  ASSERT_EQ(j->rows.size(), 1u);
  EXPECT_EQ(j->begin, 5u);
  EXPECT_EQ(j->rows[0].report.name, row.report.name);
  EXPECT_EQ(j->rows[0].report.error, row.report.error);
  EXPECT_EQ(j->rows[0].end, 77u);
  EXPECT_FALSE(ReadJournal("{\"slm_work\":2,\"identity\":\"" + std::string(64, 'd') + "\",\"begin\":1}\n"));
  EXPECT_FALSE(ReadJournal("text"));
  EXPECT_TRUE(ReadJournal(""));
  EXPECT_TRUE(ReadJournal("{\"slm_wo"));
}

}  // namespace
}  // namespace slm::cli
