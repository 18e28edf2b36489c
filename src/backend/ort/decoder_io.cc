// See decoder_io.h.
#include "backend/ort/decoder_io.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace slm::backend::ort {
namespace {

constexpr const char* kHint = "a decoder with GroupQueryAttention is run, as slm export --to genai writes it";

struct ElementRow {
  ONNXTensorElementDataType type;
  const char* name;
  int bytes;
};
constexpr ElementRow kElements[] = {
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, "f32", 4},     {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, "f16", 2},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16, "bf16", 2}, {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8, "int8", 1},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, "uint8", 1},   {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16, "int16", 2},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16, "uint16", 2}, {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, "int32", 4},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, "int64", 8},
};

const ElementRow* RowOf(ONNXTensorElementDataType type) {
  const auto* row = std::find_if(std::begin(kElements), std::end(kElements), [&](const ElementRow& r) { return r.type == type; });
  return row == std::end(kElements) ? nullptr : row;
}

Result<Port> PortOf(const OrtApi& api, const std::string& name, const OrtTypeInfo* info) {
  Port p;
  p.name = name;
  const OrtTensorTypeAndShapeInfo* tensor = nullptr;
  SLM_RETURN_IF_ERROR(Check(api, api.CastTypeInfoToTensorInfo(info, &tensor)));
  if (!tensor) return Error(Code::kUnsupported, OneLine(name) + " is not a tensor", kHint);
  size_t n = 0;
  SLM_RETURN_IF_ERROR(Check(api, api.GetTensorElementType(tensor, &p.type)));
  SLM_RETURN_IF_ERROR(Check(api, api.GetDimensionsCount(tensor, &n)));
  p.dims.resize(n);
  SLM_RETURN_IF_ERROR(Check(api, api.GetDimensions(tensor, p.dims.data(), n)));
  return p;
}

// Every input (or output) with its type.
using CountFn = OrtStatus* (*)(const OrtSession*, size_t*);
using NameFn = OrtStatus* (*)(const OrtSession*, size_t, OrtAllocator*, char**);
using TypeFn = OrtStatus* (*)(const OrtSession*, size_t, OrtTypeInfo**);
Result<std::vector<Port>> Ports(const OrtApi& api, const OrtSession* session, CountFn count, NameFn name_of, TypeFn type_of) {
  OrtAllocator* allocator = nullptr;  // the default one, not ours
  SLM_RETURN_IF_ERROR(Check(api, api.GetAllocatorWithDefaultOptions(&allocator)));
  size_t n = 0;
  SLM_RETURN_IF_ERROR(Check(api, count(session, &n)));
  std::vector<Port> out;
  for (size_t i = 0; i < n; ++i) {
    char* text = nullptr;
    SLM_RETURN_IF_ERROR(Check(api, name_of(session, i, allocator, &text)));
    const std::string name = text;
    SLM_RETURN_IF_ERROR(Check(api, api.AllocatorFree(allocator, text)));
    SLM_ASSIGN_OR_RETURN(const TypeInfo info, Make<TypeInfo>(api, [&](auto** o) { return type_of(session, i, o); }));
    SLM_ASSIGN_OR_RETURN(Port p, PortOf(api, name, info.get()));
    out.push_back(std::move(p));
  }
  return out;
}

// Of every port the memory of the device that takes or gives it.
using PlacesFn = OrtStatus* (*)(const OrtSession*, const OrtMemoryInfo**, size_t);
Status ReadPlaces(const OrtApi& api, const OrtSession* session, PlacesFn places_of, std::vector<Port>& ports) {
  std::vector<const OrtMemoryInfo*> places(ports.size());
  SLM_RETURN_IF_ERROR(Check(api, places_of(session, places.data(), places.size())));
  for (size_t i = 0; i < ports.size(); ++i) {
    OrtMemoryInfoDeviceType type = OrtMemoryInfoDeviceType_CPU;
    if (places[i]) api.MemoryInfoGetDeviceType(places[i], &type);
    if (type != OrtMemoryInfoDeviceType_CPU) ports[i].memory = places[i];
  }
  return Ok();
}

// One memory for the whole cache: past and present of a layer are the same bytes. A cache in another memory than its device's would be
// copied behind our back, once and never again.
Result<const OrtMemoryInfo*> MemoryOf(const OrtApi& api, const std::vector<CachePort>& cache) {
  const OrtMemoryInfo* first = cache.empty() ? nullptr : cache[0].past.memory;
  for (const CachePort& c : cache)
    for (const Port* p : {&c.past, &c.present}) {
      int differs = 0;
      if (p->memory && first) SLM_RETURN_IF_ERROR(Check(api, api.CompareMemoryInfo(p->memory, first, &differs)));
      if (differs != 0 || (p->memory == nullptr) != (first == nullptr))
        return Error(Code::kUnsupported, OneLine(p->name) + " lies in another memory than the rest of the cache",
                     "choose another device with --device");
    }
  return first;
}

Error Wrong(const Port& p, const std::string& what) { return Error(Code::kUnsupported, OneLine(p.name) + " " + what, kHint); }

bool IsInteger(const Port& p) { return p.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 || p.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32; }

Status CheckIndex(const Port& p) {
  if (p.name.empty() || (IsInteger(p) && p.dims.size() == 2)) return Ok();
  return Wrong(p, "is not a matrix of 32 or 64-bit integers");
}

Status CheckCache(const CachePort& c) {
  if (ElementBytes(c.past.type) == 0 || c.past.type != c.present.type) return Wrong(c.past, "has a type that no cache has here");
  if (c.past.dims.size() != 4 || c.present.dims.size() != 4) return Wrong(c.past, "has not four dimensions");
  constexpr int64_t kMostHeads = 4096, kMostWidth = 65536;
  if (c.past.dims[1] < 1 || c.past.dims[1] > kMostHeads || c.past.dims[3] < 1 || c.past.dims[3] > kMostWidth)
    return Wrong(c.past, "has no fixed number of heads and width, or too large a one");
  return Ok();
}

Result<CachePort> TakeCache(const Decoder& d, std::vector<Port>& inputs, std::vector<Port>& outputs, const std::string& past,
                            const std::string& present) {
  CachePort c{TakePort(inputs, past), TakePort(outputs, present)};
  for (Port* p : {&c.past, &c.present}) {
    if (p->dims.size() != 4) continue;
    if (p->dims[1] == -1 && d.n_kv_heads > 0) p->dims[1] = d.n_kv_heads;
    if (p->dims[3] == -1 && d.head_dim > 0) p->dims[3] = d.head_dim;
  }
  if (c.past.name.empty() || c.present.name.empty())
    return Error(Code::kUnsupported, "the graph has no " + OneLine(c.past.name.empty() ? "input " + past : "output " + present), kHint);
  SLM_RETURN_IF_ERROR(CheckCache(c));
  return c;
}

}  // namespace

std::string OfLayer(const std::string& pattern, int layer) {
  const size_t at = pattern.find("%d");
  return at == std::string::npos ? pattern : pattern.substr(0, at) + std::to_string(layer) + pattern.substr(at + 2);
}

Port TakePort(std::vector<Port>& ports, const std::string& name) {
  const auto it = std::find_if(ports.begin(), ports.end(), [&](const Port& p) { return p.name == name; });
  if (it == ports.end()) return {};
  Port p = std::move(*it);
  ports.erase(it);
  return p;
}

Result<SessionPorts> ReadPorts(const OrtApi& api, const OrtSession* session) {
  SessionPorts out;
  SLM_ASSIGN_OR_RETURN(out.inputs, Ports(api, session, api.SessionGetInputCount, api.SessionGetInputName, api.SessionGetInputTypeInfo));
  SLM_ASSIGN_OR_RETURN(out.outputs, Ports(api, session, api.SessionGetOutputCount, api.SessionGetOutputName, api.SessionGetOutputTypeInfo));
  SLM_RETURN_IF_ERROR(ReadPlaces(api, session, api.SessionGetMemoryInfoForInputs, out.inputs));
  SLM_RETURN_IF_ERROR(ReadPlaces(api, session, api.SessionGetMemoryInfoForOutputs, out.outputs));
  return out;
}

int ElementBytes(ONNXTensorElementDataType type) {
  const ElementRow* row = RowOf(type);
  return row ? row->bytes : 0;
}

const char* ElementName(ONNXTensorElementDataType type) {
  const ElementRow* row = RowOf(type);
  return row ? row->name : "other";
}

Result<DecoderIo> ReadIo(const OrtApi& api, const OrtSession* session, const Decoder& d) {
  SLM_ASSIGN_OR_RETURN(SessionPorts ports, ReadPorts(api, session));
  std::vector<Port>&inputs = ports.inputs, &outputs = ports.outputs;
  DecoderIo io;
  io.ids = TakePort(inputs, d.input_ids);
  io.mask = TakePort(inputs, d.attention_mask);
  io.positions = TakePort(inputs, d.position_ids);
  io.logits = TakePort(outputs, d.logits);
  if (io.ids.name.empty() || io.logits.name.empty())
    return Error(Code::kUnsupported, "the graph has no " + OneLine(io.ids.name.empty() ? "input " + d.input_ids : "output " + d.logits),
                 kHint);
  for (const Port* p : {&io.ids, &io.mask, &io.positions}) SLM_RETURN_IF_ERROR(CheckIndex(*p));
  if (io.logits.type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT || io.logits.dims.size() != 3)
    return Wrong(io.logits, "is not [1, T, V] of f32");
  if (io.logits.dims[2] != -1 && io.logits.dims[2] != d.vocab_size)
    return Wrong(io.logits, fmt::format("has {} values a token, the vocabulary {}", io.logits.dims[2], d.vocab_size));
  io.last_row_only = io.logits.dims[1] == 1;
  for (const Port* p : {&io.ids, &io.mask, &io.positions})
    if (!p->name.empty() && p->dims[1] != -1) return Wrong(*p, "has a fixed length: graphs of one length are not run yet");
  for (int layer = 0; layer < d.n_layers; ++layer) {
    SLM_ASSIGN_OR_RETURN(CachePort key, TakeCache(d, inputs, outputs, OfLayer(d.past_key, layer), OfLayer(d.present_key, layer)));
    SLM_ASSIGN_OR_RETURN(CachePort value, TakeCache(d, inputs, outputs, OfLayer(d.past_value, layer), OfLayer(d.present_value, layer)));
    io.cache.push_back(std::move(key));
    io.cache.push_back(std::move(value));
  }
  SLM_ASSIGN_OR_RETURN(io.cache_memory, MemoryOf(api, io.cache));
  if (!inputs.empty()) return Wrong(inputs[0], "is an input whose role is not known here");
  return io;
}

}  // namespace slm::backend::ort
