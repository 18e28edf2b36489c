// The safetensors container: good files, every cut, changed bytes, and the rules of the format one by one.
#include "model/safetensors/reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace slm::model::safetensors {
namespace {

using Bytes = std::vector<std::byte>;

Bytes File(const std::string& header, size_t data_bytes) {
  Bytes out(8 + header.size() + data_bytes);
  const uint64_t n = header.size();
  std::memcpy(out.data(), &n, 8);
  std::memcpy(out.data() + 8, header.data(), header.size());
  return out;
}

std::string ErrorOf(const Bytes& bytes) {
  const auto r = Parse(bytes);
  return r.ok() ? "parsed" : r.error().message();
}

Bytes Seed(const char* name) {
  std::ifstream in(SLM_SOURCE_DIR "/tests/corpus/safetensors_fuzz/" + std::string(name), std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(in), {}};
  Bytes out(chars.size());
  std::memcpy(out.data(), chars.data(), chars.size());
  return out;
}

TEST(SafetensorsReader, ListsTensors) {
  const Bytes bytes = Seed("llama.safetensors");
  const auto r = Parse(bytes);
  ASSERT_TRUE(r.ok()) << r.error().message();
  ASSERT_EQ(r.value().tensors.size(), 11u);
  EXPECT_EQ(r.value().tensors[0].name, "model.embed_tokens.weight");
  EXPECT_EQ(r.value().tensors[0].dims, (std::vector<int64_t>{8, 8}));
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(r.value().tensors[0].data.data(), bytes.data() + 8 + header);
  ASSERT_EQ(r.value().metadata.size(), 1u);
  EXPECT_EQ(r.value().metadata[0].second, "pt");
}

TEST(SafetensorsReader, NamesForeignTypes) {
  const Bytes bytes = Seed("types.safetensors");
  const auto r = Parse(bytes);
  ASSERT_TRUE(r.ok()) << r.error().message();
  EXPECT_EQ(TypeName(r.value().tensors[0]), "BF16");
  EXPECT_EQ(r.value().tensors[1].foreign_type, "F8_E4M3");
  EXPECT_EQ(TypeName(r.value().tensors[2]), "I32");
}

TEST(SafetensorsReader, HoldsToTheRulesOfTheFormat) {
  const auto one = [](const char* fields, size_t n) { return ErrorOf(File(std::string("{\"w\":{") + fields + "}}", n)); };
  EXPECT_EQ(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", 8), "parsed");
  EXPECT_EQ(one(R"("dtype":"F32","shape":[],"data_offsets":[0,4])", 4), "parsed") << "a scalar";
  EXPECT_EQ(one(R"("dtype":"F32","shape":[0,5],"data_offsets":[0,0])", 0), "parsed") << "an empty tensor";
  EXPECT_EQ(ErrorOf(File("{}   ", 0)), "parsed") << "padding of the header";
  for (const char* bad : {R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", R"("dtype":"F32","shape":[2],"data_offsets":[8,0])",
                          R"("dtype":"F99","shape":[2],"data_offsets":[0,8])", R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])",
                          R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])", R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])",
                          R"("dtype":"F32","shape":[2])", R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])",
                          R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])", R"("dtype":null,"shape":[2],"data_offsets":[0,8])",
                          R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8])"})
    EXPECT_NE(one(bad, 8), "parsed") << bad;
  const std::string a = R"("a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]})";
  EXPECT_EQ(ErrorOf(File("{" + a + R"(,"b":{"dtype":"I8","shape":[4],"data_offsets":[4,8]}})", 8)), "parsed");
  EXPECT_NE(ErrorOf(File("{" + a + R"(,"b":{"dtype":"I8","shape":[4],"data_offsets":[2,6]}})", 6)), "parsed") << "overlap";
  EXPECT_NE(ErrorOf(File("{" + a + R"(,"b":{"dtype":"I8","shape":[4],"data_offsets":[6,10]}})", 10)), "parsed") << "gap";
  EXPECT_NE(ErrorOf(File("{" + a + "," + a + "}", 4)), "parsed") << "the same name twice";
  EXPECT_NE(ErrorOf(File("{" + a + "}", 5)), "parsed") << "bytes after the data";
  EXPECT_NE(ErrorOf(File("[" + std::string(100000, '[') + "]", 0)), "parsed");
  EXPECT_NE(ErrorOf(File("{\"a\":" + std::string(100000, '[') + "}", 0)), "parsed");
  EXPECT_NE(ErrorOf(File("{\"__metadata__\":{\"k\":1}}", 0)), "parsed");
}

TEST(SafetensorsReader, EveryCutIsAnErrorAndNoChangedByteLeadsOutside) {
  const Bytes whole = Seed("llama.safetensors");
  for (size_t n = 0; n < whole.size(); ++n) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
    ASSERT_NE(ErrorOf(cut), "parsed") << "cut at " << n;
  }
  Bytes bytes = whole;
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), 8);
  int refused = 0;
  for (size_t i = 0; i < 8 + header; ++i)
    for (const unsigned x : {0x01u, 0x80u, 0xffu}) {
      bytes[i] = whole[i] ^ static_cast<std::byte>(x);
      refused += ErrorOf(bytes) != "parsed";
      bytes[i] = whole[i];
    }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace slm::model::safetensors
