// slm op-test: runs a folder of ONNX's node tests through the reference implementations and compares the outputs (the file is not
// op_test.cc because a name that ends so is a test).
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/mmap.h"
#include "model/json.h"
#include "onnx/onnx.h"
#include "reference/reference.h"
#include "verb.h"

namespace slm::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int kExitRefused = 2;  // "no" to the operator, not to its result

struct OpTestOptions {
  std::string folder;
};

struct Verdict {
  ordered_json ops = ordered_json::array();
  std::string difference;  // empty: all outputs agree
  double max_abs_err = 0;
  int sets = 0;
};

// tolerance.json of the case; without one ONNX's own defaults.
Result<reference::Tolerance> ReadTolerance(const fs::path& folder) {
  reference::Tolerance t;
  const auto file = MappedFile::Open((folder / "tolerance.json").string());
  if (!file.ok() && file.error().code() == Code::kNotFound) return t;
  if (!file.ok()) return file.error();
  const auto bytes = file.value().bytes();
  SLM_ASSIGN_OR_RETURN(const nlohmann::json j, model::ParseJson({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  if (!j.is_object() || !j.value("rtol", nlohmann::json(0)).is_number() || !j.value("atol", nlohmann::json(0)).is_number())
    return Error(Code::kCorrupt, "tolerance.json: not an object with numbers rtol and atol", "write {\"rtol\": 1e-3, \"atol\": 1e-7}");
  t.relative = j.value("rtol", t.relative);
  t.absolute = j.value("atol", t.absolute);
  return t;
}

// The tensors of input_0.pb, input_1.pb, … (or output_…), as many as there are.
Result<std::vector<reference::Array>> ReadTensors(const fs::path& folder, const char* kind) {
  std::vector<reference::Array> out;
  std::error_code ec;
  for (int k = 0;; ++k) {
    const fs::path path = folder / fmt::format("{}_{}.pb", kind, k);
    if (!fs::exists(path, ec)) return out;
    SLM_ASSIGN_OR_RETURN(const onnx::LooseTensor t, onnx::ReadTensor(path.string()));
    SLM_ASSIGN_OR_RETURN(reference::Array a, reference::FromTensor(t.tensor));
    out.push_back(std::move(a));
  }
}

std::vector<fs::path> DataSets(const fs::path& folder) {
  std::vector<fs::path> sets;
  std::error_code ec;
  for (fs::directory_iterator i(folder, ec), end; !ec && i != end; i.increment(ec))
    if (i->path().filename().string().starts_with("test_data_set_")) sets.push_back(i->path());
  std::sort(sets.begin(), sets.end());
  return sets;
}

Status RunSet(const onnx::Model& model, const fs::path& set, const reference::Tolerance& tolerance, Verdict& v) {
  SLM_ASSIGN_OR_RETURN(const auto inputs, ReadTensors(set, "input"));
  SLM_ASSIGN_OR_RETURN(const auto want, ReadTensors(set, "output"));
  SLM_ASSIGN_OR_RETURN(const auto got, reference::RunGraph(model, inputs));
  if (want.empty() || want.size() > got.size())
    return Error(Code::kCorrupt, fmt::format("{}: {} expected outputs, the graph has {}", set.string(), want.size(), got.size()),
                 "write one output_N.pb for each output of the graph");
  for (size_t k = 0; k < want.size(); ++k) {
    const reference::Difference d = reference::Compare(got[k], want[k], tolerance);
    v.max_abs_err = std::max(v.max_abs_err, d.largest);
    if (d.differs && v.difference.empty())
      v.difference = fmt::format("{}: output {} '{}' {}", set.filename().string(), k, model.graph.outputs[k].name, d.where);
  }
  ++v.sets;
  return Ok();
}

Result<Verdict> Test(const fs::path& folder) {
  SLM_ASSIGN_OR_RETURN(const onnx::Model model, onnx::ReadModel((folder / "model.onnx").string()));
  SLM_ASSIGN_OR_RETURN(const reference::Tolerance tolerance, ReadTolerance(folder));
  Verdict v;
  for (const onnx::Node& n : model.graph.nodes)
    if (std::find(v.ops.begin(), v.ops.end(), n.op_type) == v.ops.end()) v.ops.push_back(n.op_type);
  for (const fs::path& set : DataSets(folder)) SLM_RETURN_IF_ERROR(RunSet(model, set, tolerance, v));
  if (v.sets == 0) return Error(Code::kNotFound, folder.string() + ": no folder test_data_set_*", "name a folder of ONNX's node tests");
  return v;
}

Result<int> OpTest(const OpTestOptions& options, Io& io) {
  auto tested = Test(options.folder);
  if (!tested.ok()) {
    Report(io, tested.error());
    return int{tested.error().code() == Code::kUnsupported ? kExitRefused : kExitFailed};
  }
  const Verdict v = tested.Take();
  const bool agrees = v.difference.empty();
  const ordered_json report = {{"op", v.ops},
                               {"verdict", agrees ? "agrees" : "differs"},
                               {"max_abs_err", v.max_abs_err},
                               {"data_sets", v.sets},
                               {"where", agrees ? ordered_json(nullptr) : ordered_json(v.difference)}};
  if (io.json) io.PrintJson(report);
  else if (agrees) io.Print(fmt::format("agrees: {} data sets, largest difference {:g}\n", v.sets, v.max_abs_err));
  if (!agrees) io.Note("differs: " + v.difference);
  return int{agrees ? kExitOk : kExitFailed};
}

}  // namespace

Body DeclareOpTest(CLI::App& app, Io& io) {
  auto options = std::make_shared<OpTestOptions>();
  app.add_option("DIR", options->folder, "folder with model.onnx, test_data_set_*/input_*.pb and output_*.pb")->required();
  app.footer(
      "Exit code 0: the outputs agree; 1: they differ, or the test cannot be read; 2: an operator or type is not supported.\n\n"
      "Example:\n  slm op-test test_matmul_2d");
  return [options, &io]() -> Result<int> { return OpTest(*options, io); };
}

}  // namespace slm::cli
