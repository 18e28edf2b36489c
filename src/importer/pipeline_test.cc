// Folders of tests/tiny/onnx_decoders cut into pipelines of three stages: the logits of ONNX Runtime for the whole graph, as they are and
// with fixed shapes and quantized activations; folders that are damaged.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "graph/testing/interpreter.h"
#include "importer/importer.h"
#include "onnx/tensor_info.h"

namespace slm::importer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Names = std::vector<std::string>;
const fs::path kDecoders = fs::path(SLM_SOURCE_DIR) / "tests/tiny/onnx_decoders";

const onnx::Node& MakerOf(const onnx::Graph& g, const std::string& value) {
  for (const onnx::Node& n : g.nodes)
    if (std::find(n.outputs.begin(), n.outputs.end(), value) != n.outputs.end()) return n;
  ADD_FAILURE() << value;
  return g.nodes[0];
}

// What makes `outputs` from `inputs` and weights.
onnx::Model Part(const onnx::Model& whole, const std::vector<onnx::ValueInfo>& inputs, const std::vector<onnx::ValueInfo>& outputs) {
  onnx::Model part;  // its tensors are those of `whole`
  part.ir_version = whole.ir_version;
  part.opsets = whole.opsets;
  onnx::Graph& g = part.graph = whole.graph;
  std::set<std::string> used, given;
  for (const onnx::ValueInfo& v : inputs) given.insert(v.name);
  for (const onnx::ValueInfo& v : outputs) used.insert(v.name);
  g.nodes.clear();
  for (size_t i = whole.graph.nodes.size(); i-- > 0;) {
    const onnx::Node& n = whole.graph.nodes[i];
    const auto is_used = [&](const std::string& o) { return used.contains(o) && !given.contains(o); };
    if (std::none_of(n.outputs.begin(), n.outputs.end(), is_used)) continue;
    g.nodes.insert(g.nodes.begin(), n);
    used.insert(n.inputs.begin(), n.inputs.end());
  }
  std::erase_if(g.initializers, [&](const onnx::Tensor& t) { return !used.contains(t.name); });
  g.inputs = inputs;
  std::erase_if(g.inputs, [&](const onnx::ValueInfo& v) { return !used.contains(v.name); });
  g.outputs = outputs;
  g.value_infos.clear();
  return part;
}

enum class Shapes : uint8_t { kOpen, kOfOneToken };

// A folder in /tmp with the case cut behind its embedding and before its head.
class Folder {
 public:
  explicit Folder(const std::string& name, Shapes shapes = Shapes::kOpen)
      : whole_(onnx::ReadModel((kDecoders / name / "model.onnx").string()).Take()) {
    char path[] = "/tmp/slm_pipeline_XXXXXX";
    folder_ = mkdtemp(path);
    fs::copy(kDecoders / name / "model.onnx.data", folder_);
    const onnx::Graph& g = whole_.graph;
    const onnx::Node* n = &MakerOf(g, "logits");
    const std::string head = n->inputs[0];
    std::string embedded;
    for (const onnx::Node& node : g.nodes)
      if (node.op_type.starts_with("Gather") && node.inputs[1] == "input_ids") embedded = node.outputs[0];
    const bool fixed = shapes == Shapes::kOfOneToken;
    const onnx::Dim tokens{fixed ? 1 : -1, fixed ? "" : "sequence_length"};
    const auto between = [&](const std::string& value) {
      return onnx::TensorInfo(value, onnx::ElementType::kFloat, {{1, ""}, tokens, {32, ""}});
    };
    if (fixed) Fix();
    std::vector<onnx::ValueInfo> inputs, presents;
    for (const onnx::ValueInfo& v : g.inputs)
      if (v.name != "input_ids") inputs.push_back(v);
    for (const onnx::ValueInfo& v : g.outputs)
      if (v.name != "logits") presents.push_back(v);
    inputs.push_back(between(embedded));
    presents.push_back(between(head));
    config_ = json::parse(std::ifstream(kDecoders / name / "genai_config.json"));
    config_["model"]["type"] = "decoder-pipeline";
    config_["model"]["decoder"].erase("filename");
    const auto only = [&](const std::string& value) {
      return *std::find_if(g.inputs.begin(), g.inputs.end(), [&](const auto& v) { return v.name == value; });
    };
    const auto logits = *std::find_if(g.outputs.begin(), g.outputs.end(), [](const auto& v) { return v.name == "logits"; });
    Write("embedding", Part(whole_, {only("input_ids")}, {between(embedded)}));
    Write("layers", Part(whole_, inputs, presents));
    Write("lm_head", Part(whole_, {between(head)}, {logits}));
    if (!fixed) return;
    stage("layers")["run_on_prompt"] = false;
    Write("prompts", Part(whole_, {only("input_ids")}, {between(embedded)}));
    stage("prompts")["run_on_token_gen"] = false;
    SetConfig();
  }
  ~Folder() { fs::remove_all(folder_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const fs::path& path() const { return folder_; }
  json& stage(const std::string& name) {
    for (json& stages : config_["model"]["decoder"]["pipeline"])
      if (stages.contains(name)) return stages[name];
    ADD_FAILURE() << name;
    return config_;
  }
  json& pipeline() { return config_["model"]["decoder"]["pipeline"]; }
  void SetConfig() const { std::ofstream(folder_ / "genai_config.json") << config_; }
  std::string Message() const {
    const auto m = Import(folder_.string());
    return m.ok() ? "" : m.error().message();
  }
  std::string MessageWith(const std::function<void(Folder&)>& change) {
    const json before = config_;
    change(*this);
    SetConfig();
    const std::string message = Message();
    config_ = before;
    SetConfig();
    return message;
  }

 private:
  // As Olive makes them: one token, a cache of fixed size, lengths that the host gives; and activations of 16 bits behind every product.
  void Fix() {
    onnx::Graph& g = whole_.graph;
    std::vector<onnx::Node> nodes;
    for (onnx::Node& n : g.nodes) {
      const std::string out = n.outputs[0];
      const bool product = n.op_type.starts_with("MatMul") && out != "logits";
      if (n.op_type == "GroupQueryAttention") n.inputs[5] = "past_seq_len", n.inputs[6] = "total_seq_len";
      if (product) n.outputs[0] = out + ".float";
      nodes.push_back(n);
      if (!product) continue;
      onnx::Node codes, back;
      codes.op_type = "QuantizeLinear", codes.inputs = {out + ".float", "act.scale", "act.zero"}, codes.outputs = {out + ".codes"};
      back.op_type = "DequantizeLinear", back.inputs = {out + ".codes", "act.scale", "act.zero"}, back.outputs = {out};
      nodes.push_back(codes), nodes.push_back(back);
    }
    g.nodes = nodes;
    static constexpr float kScale = 0.01F;  // far from what a runtime would take: own kernels do not round
    static constexpr uint16_t kZero = 32768;
    onnx::Tensor scale, zero;
    scale.name = "act.scale", scale.type = onnx::ElementType::kFloat, scale.data = std::as_bytes(std::span(&kScale, 1));
    zero.name = "act.zero", zero.type = onnx::ElementType::kUint16, zero.data = std::as_bytes(std::span(&kZero, 1));
    g.initializers.push_back(scale), g.initializers.push_back(zero);
    for (auto* values : {&g.inputs, &g.outputs})
      for (onnx::ValueInfo& v : *values) {
        if (v.type.shape.size() == 4) v.type.shape[0] = {1, ""}, v.type.shape[2] = {kSlots, ""};
        if (v.name == "position_ids") v.type.shape = {{1, ""}, {1, ""}};
      }
    g.inputs.push_back(onnx::TensorInfo("past_seq_len", onnx::ElementType::kInt32, {{1, ""}, {1, ""}}));
    g.inputs.push_back(onnx::TensorInfo("total_seq_len", onnx::ElementType::kInt32, {{1, ""}}));
  }

  // Weights stay in the one file that all stages share.
  void Write(const std::string& name, const onnx::Model& m) {
    onnx::WriteOptions options{.external_from_bytes = UINT64_MAX, .data_name = name + ".data", .places = {}};
    for (const onnx::Tensor& t : m.graph.initializers)
      if (t.external_file >= 0)
        options.places[t.name] = {"model.onnx.data", static_cast<uint64_t>(t.data.data() - whole_.maps[0].bytes().data())};
    std::ofstream out(folder_ / (name + ".onnx"), std::ios::binary);
    const auto keep = [&](std::span<const std::byte> part) {
      out.write(reinterpret_cast<const char*>(part.data()), static_cast<std::streamsize>(part.size()));
      return Ok();
    };
    const Status written = onnx::WriteModel(m, options, keep, [](std::span<const std::byte>) { return Ok(); });
    EXPECT_TRUE(written.ok()) << written.error().message();
    const auto names = [](const std::vector<onnx::ValueInfo>& values) {
      Names out_names;
      for (const onnx::ValueInfo& v : values) out_names.push_back(v.name);
      return out_names;
    };
    pipeline().push_back({{name, {{"filename", name + ".onnx"}, {"inputs", names(m.graph.inputs)}, {"outputs", names(m.graph.outputs)}}}});
    SetConfig();
  }

  static constexpr int kSlots = 40;
  onnx::Model whole_;
  fs::path folder_;
  json config_;
};

// Greatest difference from ONNX Runtime's logits, and the tolerance of the case.
std::pair<double, double> Difference(const ImportedModel& m, const std::string& name, int context) {
  const json doc = json::parse(std::ifstream(kDecoders / "expected.json"));
  for (const json& c : doc.at("cases")) {
    if (c.at("name") != name) continue;
    std::vector<float> want(c.at("rows").get<size_t>() * c.at("vocab").get<size_t>());
    std::ifstream f(kDecoders / c.at("logits").get<std::string>(), std::ios::binary);
    f.read(reinterpret_cast<char*>(want.data()), static_cast<std::streamsize>(want.size() * 4));
    const auto g = BuildGraph(m, context);
    if (!g.ok()) ADD_FAILURE() << g.error().message();
    if (!g.ok()) break;
    const graph::testing::Array got = graph::testing::Interpreter(g.value()).Run(c.at("prompt").get<std::vector<int>>());
    double worst = 0, top = 0;
    for (size_t i = 0, skip = got.size() - want.size(); i < want.size(); ++i) {
      worst = std::max(worst, std::abs(got[skip + i] - want[i]));
      top = std::max(top, std::abs(double{want[i]}));
    }
    return {worst / top, c.at("tolerance").get<double>()};
  }
  return {INFINITY, 0};
}

TEST(ImportPipeline, HasTheLogitsOfTheWholeGraph) {
  for (const char* name : {"builder_f32", "builder_int4", "builder_window"}) {
    const Folder folder(name);
    auto m = Import(folder.path().string());
    ASSERT_TRUE(m.ok()) << m.error().message();
    const auto [error, tolerance] = Difference(m.value(), name, 40);
    EXPECT_LE(error, tolerance) << name;
    const auto whole = Import((kDecoders / name).string()).Take();
    EXPECT_EQ(m.value().model->config.tied_head, whole.model->config.tied_head) << name << ": stages that name the same bytes";
    EXPECT_EQ(m.value().model->tensors.size(), whole.model->tensors.size()) << name;
    EXPECT_EQ(m.value().model->format, "genai");
  }
}

TEST(ImportPipeline, FixedShapesAndQuantizedActivations) {
  for (const char* name : {"builder_f32", "builder_int4"}) {
    const Folder folder(name, Shapes::kOfOneToken);
    auto m = Import(folder.path().string());
    ASSERT_TRUE(m.ok()) << m.error().message();
    EXPECT_EQ(m.value().model->config.max_context, 40) << "slots of the cache";
    const auto [error, tolerance] = Difference(m.value(), name, 40);
    EXPECT_LE(error, tolerance) << name;
  }
}

void ExpectRefusal(const std::string& message, const Names& parts) {
  EXPECT_NE(message, "");
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
}

TEST(ImportPipeline, DamagedFoldersAreRefused) {
  Folder f("builder_f32");
  ExpectRefusal(f.MessageWith([](Folder& x) { x.stage("layers")["filename"] = "absent.onnx"; }),
                {"genai_config.json", "layers", "absent.onnx"});
  ExpectRefusal(f.MessageWith([](Folder& x) { x.stage("layers")["filename"] = "../layers.onnx"; }), {"layers", "not the name of a file"});
  ExpectRefusal(f.MessageWith([](Folder& x) { x.stage("layers")["filename"] = "/etc/passwd"; }), {"layers", "not the name of a file"});
  ExpectRefusal(f.MessageWith([](Folder& x) { x.stage("layers")["filename"] = "model.onnx.data"; }), {"model.onnx.data"});
  ExpectRefusal(f.MessageWith([](Folder& x) { x.stage("lm_head")["filename"] = "embedding.onnx"; }), {"two stages", "embedding.onnx"});
  ExpectRefusal(f.MessageWith([](Folder& x) { std::swap(x.pipeline()[0], x.pipeline()[1]); }),
                {"stage \"layers\"", "\"embedding\"", "a cycle"});
  ExpectRefusal(f.MessageWith([](Folder& x) { x.pipeline().erase(0); }), {"stage \"layers\"", "made by no stage"});
  ExpectRefusal(f.MessageWith([](Folder& x) { x.pipeline().erase(2); }), {"no output \"logits\""});
  ExpectRefusal(f.MessageWith([](Folder& x) { x.pipeline() = json::array(); }), {"names no ONNX file"});
  ExpectRefusal(f.MessageWith([](Folder& x) {
    for (const char* name : {"embedding", "layers", "lm_head"}) x.stage(name)["run_on_token_gen"] = false;
  }),
                {"no stage runs for single tokens"});
  ExpectRefusal(f.MessageWith([](Folder& x) { x.stage("layers")["inputs"].push_back("nobody"); }),
                {"stage \"layers\"", "no input \"nobody\""});
  ExpectRefusal(f.MessageWith([](Folder& x) { x.stage("layers")["outputs"].erase(0); }), {"cache"});
  fs::create_symlink("/etc/hostname", f.path() / "link.onnx");
  ExpectRefusal(f.MessageWith([](Folder& x) { x.stage("layers")["filename"] = "link.onnx"; }), {"link.onnx", "out of the folder"});
  EXPECT_EQ(f.Message(), "");
}

}  // namespace
}  // namespace slm::importer
