// See load_decoder.h.
#include "load_decoder.h"

#include "onnx/static_folder/static_folder.h"
#include "static_graphs.h"

namespace slm::cli {

Result<LoadedDecoder> LoadDecoder(const std::string& path) {
  std::vector<int32_t> begin;
  if (onnx::IsStaticFolder(path)) {
    SLM_ASSIGN_OR_RETURN(const onnx::StaticFolder folder, onnx::ReadStaticFolder(path));
    SLM_ASSIGN_OR_RETURN(const KnownSums sums, CheckSums(folder));
    for (const onnx::StaticGraphFile& g : folder.manifest.graphs) {
      SLM_ASSIGN_OR_RETURN(const onnx::Model graph, onnx::ReadModel(path + "/" + g.name));
      SLM_RETURN_IF_ERROR(CheckExternalData(folder, graph, sums));
    }
    begin = folder.manifest.prefix_tokens;
  }
  if (!importer::IsOnnxModel(path)) {
    SLM_ASSIGN_OR_RETURN(auto m, model::LoadModel(path));
    return LoadedDecoder{std::move(m), nullptr, {}};
  }
  SLM_ASSIGN_OR_RETURN(importer::ImportedModel m, importer::Import(path));
  return LoadedDecoder{std::move(m.model), std::move(m.decoder), std::move(begin)};
}

Status RefusePackage(const model::Model& m) {
  if (m.packed_layout == 0) return Ok();
  return Error(Code::kUnsupported, m.path + ": a package, whose weights are packed for this program's kernels and cannot be turned back",
               "name the model that it was made from");
}

Result<graph::Graph> GraphOf(const LoadedDecoder& d, int context) {
  return d.onnx ? importer::BuildGraph({d.model, d.onnx}, context) : graph::BuildDecoder(d.model, {.max_context = context});
}

}  // namespace slm::cli
