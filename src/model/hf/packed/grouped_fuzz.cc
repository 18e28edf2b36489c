// libFuzzer: a config.json, a zero byte, a safetensors file: the packed matrices of a folder, joined and read at both ends.
#include <algorithm>
#include <string>
#include <vector>

#include "model/grouped/grouped.h"
#include "model/hf/load.h"
#include "model/safetensors/reader.h"

using namespace slm::model;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const uint8_t* end = std::find(data, data + size, uint8_t{0});
  if (end == data + size) return 0;
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(end + 1), reinterpret_cast<const std::byte*>(data + size));
  for (const LoadWhat what : {LoadWhat::kContainer, LoadWhat::kAll}) {
    auto file = safetensors::Parse(bytes);
    if (!file.ok() || file.value().tensors.empty()) return 0;
    Model m;
    m.tensors = std::move(file.value().tensors);
    (void)hf::FillModel(hf::Folder::OfTexts({{"config.json", std::string(data, end)}}), what, &m);
    for (const Tensor& t : m.tensors) {
      if (!t.grouped || t.dims[1] > 1 << 16) continue;
      std::vector<float> row(static_cast<size_t>(t.dims[1]));
      ReadRows(t, 0, 1, row.data());
      ReadRows(t, t.dims[0] - 1, t.dims[0], row.data());
      std::vector<uint8_t> codes(row.size());
      std::vector<int16_t> zeros(static_cast<size_t>(t.grouped->n_groups));
      std::vector<float> scales(zeros.size());
      ReadGroupedCodes(*t.grouped, t.dims[0] - 1, t.dims[0], {codes.data(), zeros.data(), scales.data()});
    }
  }
  return 0;
}
