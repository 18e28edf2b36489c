// See writer.h.
#include "model/safetensors/writer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace slm::model::safetensors {

void FileWriter::Tensor(const std::string& name, std::string_view dtype, const std::vector<int64_t>& dims, uint64_t bytes) {
  const nlohmann::ordered_json row = {{"dtype", dtype}, {"shape", dims}, {"data_offsets", {end_, end_ + bytes}}};
  header_ += fmt::format(",{}:{}", nlohmann::json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), row.dump());
  end_ += bytes;
}

Status FileWriter::Begin(ByteSink sink) {
  sink_ = std::move(sink);
  std::string text = R"({"__metadata__":{"format":"pt"})" + header_ + "}";  // "pt": what transformers asks for
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t size = text.size();
  SLM_RETURN_IF_ERROR(sink_(std::as_bytes(std::span(&size, 1))));
  SLM_RETURN_IF_ERROR(sink_(std::as_bytes(std::span(text))));
  written_ = 8 + size;
  return Ok();
}

Status FileWriter::Data(std::span<const std::byte> bytes) {
  if (bytes.size() > end_ - filled_) return Error(Code::kInternal, "more data than the header announced");
  SLM_RETURN_IF_ERROR(sink_(bytes));
  filled_ += bytes.size();
  written_ += bytes.size();
  return Ok();
}

Status FileWriter::Finish() {
  if (filled_ == end_) return Ok();
  return Error(Code::kInternal, fmt::format("{} of {} bytes of data were written", filled_, end_));
}

}  // namespace slm::model::safetensors
