// The GGUF container: what a good file gives, and that no cut and no changed byte of one leads outside of it.
#include "model/gguf/reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "model/gguf/load.h"
#include "model/gguf/test_writer.h"

namespace slm::model::gguf {
namespace {

Bytes ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> chars{std::istreambuf_iterator<char>(in), {}};
  Bytes out(chars.size());
  if (!chars.empty()) std::memcpy(out.data(), chars.data(), chars.size());
  return out;
}

Bytes Seed(const char* name) { return ReadFile(SLM_SOURCE_DIR "/tests/corpus/gguf_fuzz/" + std::string(name)); }

// The error of a parse that must fail.
std::string ErrorOf(const Bytes& bytes) {
  const auto r = Parse(bytes);
  return r.ok() ? "parsed" : r.error().message();
}

TEST(GgufReader, ListsKeysAndTensors) {
  const Bytes bytes = Seed("llama.gguf");
  const auto r = Parse(bytes);
  ASSERT_TRUE(r.ok()) << r.error().message();
  const File& f = r.value();
  EXPECT_EQ(f.version, 3u);
  EXPECT_EQ(f.keys.size(), 19u);
  EXPECT_EQ(f.tensors.size(), 11u);
  EXPECT_EQ(f.keys[0].name, "general.architecture");
  EXPECT_EQ(ValueText(f.keys[0].value), "llama");
  EXPECT_EQ(GetInteger(f, "llama.embedding_length").value(), 8);
  EXPECT_EQ(GetNumber(f, "llama.rope.freq_base").value(), 10000.0);
  EXPECT_EQ(GetBool(f, "tokenizer.ggml.add_bos_token").value(), true);
  EXPECT_EQ(GetInteger(f, "not.there").value(), std::nullopt);
  EXPECT_FALSE(GetInteger(f, "general.architecture").ok());
  const Tensor& k = f.tensors[4];
  EXPECT_EQ(k.name, "blk.0.attn_k.weight");
  EXPECT_EQ(k.dims, (std::vector<int64_t>{4, 8})) << "outermost first";
  EXPECT_EQ(k.data.size(), 4u * 8 * 4);
}

TEST(GgufReader, ReadsEveryValueTypeAndListsForeignTensorTypes) {
  const Bytes bytes = Seed("types.gguf");
  const auto r = Parse(bytes);
  ASSERT_TRUE(r.ok()) << r.error().message();
  EXPECT_EQ(r.value().version, 2u);
  for (const char* type : {"u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"})
    EXPECT_EQ(GetInteger(r.value(), std::string("x.") + type).value(), 1) << type;
  for (const char* type : {"f32", "f64", "u8"}) EXPECT_EQ(GetNumber(r.value(), std::string("x.") + type).value(), 1.0) << type;
  int foreign = 0;
  for (const Tensor& t : r.value().tensors)
    if (!t.foreign_type.empty()) {
      ++foreign;
      EXPECT_EQ(TypeName(t), "IQ2_XXS");
      EXPECT_EQ(t.data.size(), 66u);
    }
  EXPECT_EQ(foreign, 1);
}

TEST(GgufReader, RefusesVersionsAndByteOrder) {
  EXPECT_NE(ErrorOf(Writer().Header(0, 0, 1).bytes).find("version 1"), std::string::npos);
  EXPECT_NE(ErrorOf(Writer().Header(0, 0, 4).bytes).find("version 4"), std::string::npos);
  EXPECT_NE(ErrorOf(Writer().Header(0, 0, 0x03000000).bytes).find("big-endian"), std::string::npos);
  EXPECT_EQ(ErrorOf(Writer().Header(0, 0).bytes), "parsed");
}

TEST(GgufReader, RefusesNamesThatOccurTwice) {
  EXPECT_NE(ErrorOf(Writer().Header(0, 2).Text("k").Num<uint32_t>(0).Num<uint8_t>(1).Text("k").Num<uint32_t>(0).Num<uint8_t>(1).bytes)
                .find("twice"),
            std::string::npos);
  EXPECT_NE(ErrorOf(Writer().Header(2, 0).Row("w", 8, 1, 0, 0).Row("w", 8, 1, 0, 32).Data(64).bytes).find("twice"), std::string::npos);
}

TEST(GgufReader, RefusesDataThatOverlapsOrLiesOutside) {
  EXPECT_EQ(ErrorOf(Writer().Header(2, 0).Row("a", 8, 1, 0, 32).Row("b", 8, 1, 0, 0).Data(64).bytes), "parsed") << "any order of offsets";
  EXPECT_NE(ErrorOf(Writer().Header(2, 0).Row("a", 16, 1, 0, 0).Row("b", 8, 1, 0, 32).Data(96).bytes).find("overlap"), std::string::npos);
  EXPECT_NE(ErrorOf(Writer().Header(1, 0).Row("a", 8, 1, 0, 0).Data(31).bytes).find("past the end"), std::string::npos);
  EXPECT_NE(ErrorOf(Writer().Header(1, 0).Row("a", 8, 1, 0, 4).Data(64).bytes).find("alignment"), std::string::npos);
  EXPECT_NE(ErrorOf(Writer().Header(1, 0).Row("a", 8, uint64_t{1} << 62, 0, 0).Data(32).bytes).find("possible shape"), std::string::npos);
  EXPECT_NE(ErrorOf(Writer().Header(1, 0).Row("a", 8, uint64_t{1} << 59, 0, 0).Data(32).bytes).find("63 bits"), std::string::npos);
  EXPECT_NE(ErrorOf(Writer().Header(1, 0).Row("a", 48, 1, 2, 0).Data(32).bytes).find("block of 32"), std::string::npos);
}

TEST(GgufReader, EveryCutIsAnError) {
  const Bytes whole = Seed("llama.gguf");
  ASSERT_TRUE(Parse(whole).ok());
  for (size_t n = 0; n < whole.size(); ++n) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));  // its own memory: a sanitizer sees a read past it
    const auto r = Parse(cut);
    ASSERT_FALSE(r.ok()) << "cut at " << n;
    ASSERT_EQ(r.error().code(), Code::kCorrupt) << "cut at " << n;
    ASSERT_FALSE(r.error().hint().empty());
  }
}

TEST(GgufReader, NoChangedByteOfTheHeaderLeadsOutside) {
  Bytes bytes = Seed("llama.gguf");
  const size_t header = static_cast<size_t>(Parse(bytes).value().tensors[0].data.data() - bytes.data());
  int loaded = 0, refused = 0;
  for (size_t i = 0; i < header; ++i) {
    const std::byte old = bytes[i];
    for (const unsigned x : {0x01u, 0x80u, 0xffu}) {
      bytes[i] = old ^ static_cast<std::byte>(x);
      auto file = Parse(bytes);
      const bool ok = file.ok() && MakeModel(file.Take(), "m", LoadWhat::kAll).ok();
      ok ? ++loaded : ++refused;
    }
    bytes[i] = old;
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(loaded, 0) << "names of unused keys may change";
}

}  // namespace
}  // namespace slm::model::gguf
