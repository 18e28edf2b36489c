// Models that `slm export --to genai` writes, imported again and run on the CPU back end: the logits of transformers; graphs of other
// software: those of ONNX Runtime. (Rooms on one floor do not know each other; here they meet.)
#include "load_decoder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/cpu/cpu.h"
#include "exporter/exporter.h"
#include "onnx/onnx.h"

namespace slm::cli {
namespace {

namespace fs = std::filesystem;
const fs::path kTiny = fs::path(SLM_SOURCE_DIR) / "tests/tiny";

std::unique_ptr<backend::Backend> Open(const fs::path& path, int context, backend::ComputeMode compute) {
  auto loaded = LoadDecoder(path.string());
  EXPECT_TRUE(loaded.ok()) << loaded.error().message();
  if (!loaded.ok()) return nullptr;
  graph::Graph g = GraphOf(loaded.value(), context).Take();
  EXPECT_TRUE(graph::RunPasses(g, {}).ok());
  auto b = backend::CreateCpuBackend(
      g, {.context = context, .kv_type = kernels::KvType::kF32, .compute = compute, .logits = backend::LogitsOf::kAllTokens});
  EXPECT_TRUE(b.ok()) << b.error().message();
  return b.ok() ? b.Take() : nullptr;
}

std::vector<float> AllRows(backend::Backend& b, const std::vector<int32_t>& tokens) {
  std::vector<float> rows;
  for (const int32_t t : tokens) {  // one by one: every position of the tables, and the cache
    auto l = b.Forward(std::vector<int32_t>{t}, backend::LogitsOf::kAllTokens);
    EXPECT_TRUE(l.ok());
    if (l.ok()) rows.insert(rows.end(), l.value().Row(0).begin(), l.value().Row(0).end());
  }
  return rows;
}

double Difference(const std::vector<float>& got, const std::vector<float>& want) {
  double worst = 0, top = 0;
  for (size_t i = 0, skip = got.size() - want.size(); i < want.size(); ++i) {
    worst = std::max(worst, std::abs(double{got[skip + i]} - want[i]));
    top = std::max(top, std::abs(double{want[i]}));
  }
  return worst / top;
}

// The model at `path` as a GenAI folder; false: the export refuses its heads.
bool Export(const fs::path& path, const fs::path& out, int context) {
  const auto m = model::LoadModel(path.string()).Take();
  graph::Graph g = graph::BuildDecoder(m, {.max_context = context}).Take();
  EXPECT_TRUE(graph::RunPasses(g, exporter::PassesOffForGenAi()).ok());
  auto built = exporter::BuildGenAiModel(g, exporter::Accuracy::kFloat);
  if (!built.ok()) return false;
  fs::create_directories(out);
  std::ofstream(out / "genai_config.json") << exporter::GenAiConfig(*m, context);
  std::ofstream message(out / "model.onnx", std::ios::binary), data(out / "model.onnx.data", std::ios::binary);
  const auto to = [](std::ofstream& f) {
    return [&f](std::span<const std::byte> b) {
      f.write(reinterpret_cast<const char*>(b.data()), static_cast<std::streamsize>(b.size()));
      return Ok();
    };
  };
  EXPECT_TRUE(onnx::WriteModel(built.value().model, {.data_name = "model.onnx.data"}, to(message), to(data)).ok());
  return true;
}

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("slm_decoder_" + std::to_string(::getpid()))) { fs::remove_all(path_); }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST(ExportedDecoder, HasTheLogitsOfTransformers) {
  std::ifstream in(kTiny / "models/expected.json");
  const nlohmann::json doc = nlohmann::json::parse(in);
  int checked = 0;
  for (const nlohmann::json& c : doc.at("cases")) {
    const Folder folder;
    const int context = c.at("max_context");
    if (!Export(kTiny / "models" / c.at("path").get<std::string>(), folder.path(), context)) continue;
    std::vector<float> want(c.at("rows").get<size_t>() * c.at("vocab").get<size_t>());
    std::ifstream f(kTiny / "models" / c.at("logits").get<std::string>(), std::ios::binary);
    f.read(reinterpret_cast<char*>(want.data()), static_cast<std::streamsize>(want.size() * 4));
    const auto b = Open(folder.path(), context, backend::ComputeMode::kF32);
    ASSERT_TRUE(b) << c.at("name");
    EXPECT_LE(Difference(AllRows(*b, c.at("prompt")), want), c.at("tolerance").get<double>()) << c.at("name");
    ++checked;
  }
  EXPECT_GE(checked, 8);
}

TEST(ImportedDecoder, RunsOnTheCpuBackEnd) {
  constexpr int kContext = 40;  // as far as "branching" goes
  std::ifstream in(kTiny / "onnx_decoders/expected.json");
  const nlohmann::json doc = nlohmann::json::parse(in);
  for (const nlohmann::json& c : doc.at("cases")) {
    std::vector<float> want(c.at("rows").get<size_t>() * c.at("vocab").get<size_t>());
    std::ifstream f(kTiny / "onnx_decoders" / c.at("logits").get<std::string>(), std::ios::binary);
    f.read(reinterpret_cast<char*>(want.data()), static_cast<std::streamsize>(want.size() * 4));
    const auto b = Open(kTiny / "onnx_decoders" / c.at("name").get<std::string>(), kContext, backend::ComputeMode::kF32);
    ASSERT_TRUE(b) << c.at("name");
    EXPECT_LE(Difference(AllRows(*b, c.at("prompt")), want), c.at("tolerance").get<double>()) << c.at("name");
    // Native: codes in blocks of 16 columns and activations are rounded.
    const auto native = Open(kTiny / "onnx_decoders" / c.at("name").get<std::string>(), kContext, backend::ComputeMode::kNative);
    ASSERT_TRUE(native) << c.at("name");
    EXPECT_LE(Difference(AllRows(*native, c.at("prompt")), want), 0.05) << c.at("name");
  }
}

}  // namespace
}  // namespace slm::cli
