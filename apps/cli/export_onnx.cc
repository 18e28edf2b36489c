// See export_onnx.h.
#include "export_onnx.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "onnx/onnx.h"
#include "output_file.h"
#include "progress.h"

namespace slm::cli {

Result<OnnxFiles> WriteOnnx(const onnx::Model& m, const std::string& path, const std::string& out, const Io& io) {
  const std::string data_path = out + ".data";
  if (IsDirect(out)) return Error(Code::kInvalidArgument, out + ": no file can lie beside it", "give the path of a file");
  std::error_code unknown;
  if (std::filesystem::exists(data_path, unknown) && !std::filesystem::exists(out, unknown))
    return Error(Code::kInvalidArgument, data_path + ": is there already, without " + out, "move it away, or give another path");
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (const onnx::ExternalFile& f : m.external_files)
    for (const std::string& written : {out, data_path}) SLM_RETURN_IF_ERROR(RefuseInput(written, (folder / f.name).string()));
  SLM_RETURN_IF_ERROR(RefuseInput(data_path, path));
  std::optional<OutputFile> data;
  uint64_t data_bytes = 0, message_bytes = 0;
  const auto data_sink = [&](std::span<const std::byte> bytes) -> Status {
    if (!data) {
      auto file = OpenOutput(data_path, io);
      if (!file.ok()) return file.error();
      data.emplace(file.Take());
    }
    data_bytes += bytes.size();
    return WriteUnlessCancelled(*data, bytes, data_path, io);
  };
  SLM_ASSIGN_OR_RETURN(OutputFile file, OpenOutput(out, io));
  const auto sink = [&](std::span<const std::byte> bytes) {
    message_bytes += bytes.size();
    return WriteUnlessCancelled(file, bytes, out, io);
  };
  onnx::WriteOptions options;
  options.data_name = std::filesystem::path(data_path).filename().string();
  if (const Status s = onnx::WriteModel(m, options, sink, data_sink); !s.ok()) return s.error().At(path);
  // An older message goes first: it must not be read with newer data should the work be cut off between the two.
  if (data && std::filesystem::is_regular_file(out, unknown)) std::filesystem::remove(out, unknown);
  if (data) SLM_RETURN_IF_ERROR(data->Commit());
  SLM_RETURN_IF_ERROR(file.Commit());
  OnnxFiles written{{out}, message_bytes, data_bytes};
  if (data) written.paths.push_back(data_path);
  return written;
}

std::string OnnxFilesText(const OnnxFiles& files) {
  std::string text = files.paths[0] + ": " + FormatBytes(files.message_bytes);
  if (files.paths.size() > 1) text += ", weights in " + files.paths[1] + ": " + FormatBytes(files.data_bytes);
  return text;
}

Result<int> ExportOnnx(const std::string& path, const std::string& out, Io& io) {
  if (!path.ends_with(".onnx"))
    return Error(Code::kInvalidArgument, path + ": not an ONNX file", "--to onnx rewrites ONNX files; name one that ends in .onnx");
  SLM_ASSIGN_OR_RETURN(const onnx::Model m, onnx::ReadModel(path));
  SLM_ASSIGN_OR_RETURN(const OnnxFiles files, WriteOnnx(m, path, out, io));
  if (io.json) io.PrintJson({{"files", files.paths}, {"bytes", files.message_bytes + files.data_bytes}});
  else io.Note(OnnxFilesText(files));
  return int{kExitOk};
}

}  // namespace slm::cli
