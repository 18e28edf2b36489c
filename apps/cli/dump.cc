// slm dump: one tensor of a file as raw little-endian f32, dequantised, rows first.
//
// The values are read from the mapped model while they are written, so the output must not be one of the model's own files.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "model/model.h"
#include "output_file.h"
#include "store.h"
#include "verb.h"

namespace slm::cli {
namespace {

struct DumpOptions {
  std::string file, tensor, out;
};

Result<const model::Tensor*> FindTensor(const model::Model& m, const std::string& name) {
  const model::Tensor* t = m.FindName(name);
  if (!t) {
    std::vector<std::string> names;
    for (const model::Tensor& other : m.tensors) names.push_back(other.name);
    const std::string hint = DidYouMean(Suggest(name, names));
    return Error(Code::kNotFound, m.path + ": no tensor '" + name + "'", hint.empty() ? "slm inspect --json lists the tensors" : hint);
  }
  if (t->packed_bytes > 0)
    return Error(Code::kUnsupported, m.path + ": tensor '" + name + "' is packed for execution",
                 "dump it from the model that the package was made from");
  if (!t->foreign_type.empty() && !t->grouped)
    return Error(Code::kUnsupported,
                 m.path + ": tensor '" + name + "' is stored as " + std::string(t->foreign_type) + ", which is not supported",
                 "convert the model to a type that slm inspect calls runnable");
  return t;
}

constexpr int64_t kPart = int64_t{1} << 18;  // values in memory at a time, a multiple of every block

Status WriteRows(const model::Tensor& t, const std::string& path, OutputFile& file, Io& io) {
  const int64_t width = t.dims.back(), step = std::max<int64_t>(1, kPart / width);
  std::vector<float> part;
  for (int64_t row = 0; row < t.dims[0]; row += step) {
    const int64_t end = std::min(row + step, t.dims[0]);
    part.resize(static_cast<size_t>((end - row) * width));
    model::ReadRows(t, row, end, part.data());
    SLM_RETURN_IF_ERROR(WriteUnlessCancelled(file, std::as_bytes(std::span(part)), path, io));
  }
  return file.Commit();
}

// A bounded part of the tensor at a time, whatever its size.
Status WriteTensor(const model::Tensor& t, const std::string& path, Io& io) {
  SLM_ASSIGN_OR_RETURN(OutputFile file, OpenOutput(path, io));
  if (t.grouped) return WriteRows(t, path, file, io);
  std::vector<float> part(static_cast<size_t>(std::min(kPart, t.n_values())));
  for (int64_t at = 0; at < t.n_values(); at += kPart) {
    const int64_t end = std::min(at + kPart, t.n_values());
    model::Dequantize(t.dtype, t.data, at, end, part.data());
    const auto bytes = std::as_bytes(std::span(part.data(), static_cast<size_t>(end - at)));
    SLM_RETURN_IF_ERROR(WriteUnlessCancelled(file, bytes, path, io));
  }
  return file.Commit();
}

Result<int> Dump(const DumpOptions& options, Io& io) {
  SLM_ASSIGN_OR_RETURN(const std::string path, ResolveModel(io, options.file));
  SLM_ASSIGN_OR_RETURN(const auto m, model::LoadModel(path, model::LoadWhat::kContainer));
  SLM_ASSIGN_OR_RETURN(const model::Tensor* t, FindTensor(*m, options.tensor));
  SLM_RETURN_IF_ERROR(RefuseModelFile(options.out, path, Neighbours::kSameExtension));
  SLM_RETURN_IF_ERROR(WriteTensor(*t, options.out, io));
  const nlohmann::ordered_json report = {{"name", t->name}, {"dtype", model::TypeName(*t)}, {"shape", t->dims}};
  if (io.json) io.PrintJson(report);
  else io.Note(t->name + " " + std::string(model::TypeName(*t)) + " " + report["shape"].dump() + " as f32 in " + options.out);
  return int{kExitOk};
}

}  // namespace

Body DeclareDump(CLI::App& app, Io& io) {
  auto options = std::make_shared<DumpOptions>();
  app.add_option("FILE", options->file, "GGUF file, safetensors file, Hugging Face folder, or a name in the store")->required();
  app.add_option("--tensor", options->tensor, "name of the tensor as the file spells it")->required();
  app.add_option("-o,--out", options->out, "file to write: raw little-endian f32, rows first")->required();
  app.footer("Example:\n  slm dump model.gguf --tensor output_norm.weight --out norm.f32");
  return [options, &io]() -> Result<int> { return Dump(*options, io); };
}

}  // namespace slm::cli
