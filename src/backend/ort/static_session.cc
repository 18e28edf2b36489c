// See static_session.h.
#include "backend/ort/static_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/ort/decoder_io.h"
#include "base/arena.h"
#include "base/check.h"

namespace slm::backend::ort {
namespace {

constexpr ONNXTensorElementDataType ElementOf(StaticType t) {
  switch (t) {
    case StaticType::kU16: return ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16;
    case StaticType::kI16: return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16;
    case StaticType::kF32: break;
  }
  return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
}

std::vector<int64_t> DimsOf(const StaticInput& i, StaticType type, int64_t tokens, int64_t slots) {
  switch (i.rows) {
    case StaticInput::Rows::kToken: return {1, tokens, i.table.row_bytes / BytesOf(type)};
    case StaticInput::Rows::kPosition: return {1, 1, tokens, i.table.row_bytes / BytesOf(type)};
    case StaticInput::Rows::kMask: return {1, 1, i.repeats * tokens, slots + tokens};
  }
  return {};
}

int64_t Product(std::span<const int64_t> dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  return n;
}

std::string Shown(std::span<const int64_t> dims) {
  std::string s;
  for (const int64_t d : dims) s += (s.empty() ? "[" : ", ") + std::to_string(d);
  return s + "]";
}

// Takes the port of that name and checks that it is what the description says.
Status Expect(std::vector<Port>& ports, const std::string& name, ONNXTensorElementDataType type, std::span<const int64_t> dims) {
  const Port p = TakePort(ports, name);
  constexpr const char* kHint = "the folder's files are not of one export: export it again with slm export --to qdq";
  if (p.name.empty()) return Error(Code::kUnsupported, "the graph has no " + OneLine(name), kHint);
  // What is bound from here would be copied there once and never again.
  if (p.memory)
    return Error(Code::kUnsupported, OneLine(name) + " lies in the memory of a device, and static graphs are fed from the CPU's",
                 "choose another device with --device");
  if (p.type == type && std::ranges::equal(p.dims, dims)) return Ok();
  return Error(Code::kUnsupported,
               fmt::format("{} is {}{}, the description says {}{}", OneLine(name), ElementName(p.type), Shown(p.dims), ElementName(type),
                           Shown(dims)),
               kHint);
}

// One row of a mask: the query at `first` + `row` sees the cache's slots before the call and the call's tokens up to its own.
template <class T>
void MaskRow(T* out, const StaticInput& i, int64_t slots, int64_t tokens, int64_t first, int64_t row) {
  const auto allowed = static_cast<T>(i.allowed), masked = static_cast<T>(i.masked);
  std::fill_n(out, slots + tokens, masked);
  const int64_t window = i.window > 0 ? i.window : slots + tokens;
  const int64_t from = std::max<int64_t>(0, first + row - window + 1);
  if (from < first) std::fill(out + from, out + first, allowed);
  std::fill(out + slots + std::max<int64_t>(0, row - window + 1), out + slots + row + 1, allowed);
}

template <class T>
void FillMask(T* out, const StaticInput& i, int64_t slots, int64_t tokens, int64_t first) {
  const int64_t width = slots + tokens;
  for (int64_t row = 0; row < tokens; ++row) MaskRow(out + row * width, i, slots, tokens, first, row);
  for (int64_t r = 1; r < i.repeats; ++r) std::copy_n(out, tokens * width, out + r * tokens * width);
}

}  // namespace

Result<int64_t> StaticCache::BytesFor(const StaticDecoder& d) {
  constexpr int64_t kMost = int64_t{1} << 46;
  int64_t bytes = 2 * BytesOf(d.cache_type);
  for (const int64_t n : {d.n_layers, d.n_kv_heads, d.head_dim, d.context}) {
    if (n < 1 || bytes > kMost / n) return Error(Code::kLimit, "the KV cache is larger than any memory", "reduce the context");
    bytes *= n;
  }
  return bytes;
}

Result<StaticCache> StaticCache::Create(const StaticDecoder& d) {
  SLM_ASSIGN_OR_RETURN(const int64_t bytes, BytesFor(d));
  StaticCache c;
  c.type_ = d.cache_type;
  c.part_bytes_ = bytes / (2 * d.n_layers);
  c.stride_ = AlignUp(static_cast<size_t>(c.part_bytes_), 64);
  c.heads_ = d.n_kv_heads, c.width_ = d.head_dim, c.slots_ = d.context, c.element_ = BytesOf(d.cache_type);
  SLM_ASSIGN_OR_RETURN(c.buffer_, Buffer::Allocate(c.stride_ * 2 * static_cast<size_t>(d.n_layers)));
  return c;
}

void StaticCache::Store(int layer, int first, int n, int stride, const std::byte* keys, const std::byte* values) const {
  SLM_ASSERT(first >= 0 && n >= 0 && first + n <= slots_);
  const auto run = static_cast<size_t>(n * element_);
  std::byte* key = Key(layer) + first * element_;
  for (int64_t row = 0; row < heads_ * width_; ++row) std::memcpy(key + row * slots_ * element_, keys + row * stride * element_, run);
  const int64_t token_bytes = width_ * element_;
  std::byte* value = Value(layer) + first * token_bytes;
  for (int64_t h = 0; h < heads_; ++h)
    std::memcpy(value + h * slots_ * token_bytes, values + h * stride * token_bytes, static_cast<size_t>(n * token_bytes));
}

namespace {

float Load(StaticType t, const std::byte* from, float scale) {
  if (t == StaticType::kF32) return *reinterpret_cast<const float*>(from);
  if (t == StaticType::kI16) return scale * static_cast<float>(*reinterpret_cast<const int16_t*>(from));
  return scale * static_cast<float>(*reinterpret_cast<const uint16_t*>(from));
}
template <class T>
T Nearest(float v) {
  using Limits = std::numeric_limits<T>;
  return static_cast<T>(std::nearbyint(std::clamp(v, static_cast<float>(Limits::min()), static_cast<float>(Limits::max()))));
}
void Save(StaticType t, float v, float scale, std::byte* to) {
  if (t == StaticType::kF32) *reinterpret_cast<float*>(to) = v;
  else if (t == StaticType::kI16) *reinterpret_cast<int16_t*>(to) = Nearest<int16_t>(v / scale);
  else *reinterpret_cast<uint16_t*>(to) = Nearest<uint16_t>(v / scale);
}

}  // namespace

void StaticCache::Read(int layer, int first, int n, const Scales& scales, float* keys, float* values) const {
  for (int64_t h = 0; h < heads_; ++h)
    for (int64_t slot = first; slot < first + n; ++slot)
      for (int64_t j = 0; j < width_; ++j) {
        *keys++ = Load(type_, Key(layer) + ((h * width_ + j) * slots_ + slot) * element_, scales.key);
        *values++ = Load(type_, Value(layer) + ((h * slots_ + slot) * width_ + j) * element_, scales.value);
      }
}

void StaticCache::Write(int layer, int first, int n, const Scales& scales, const float* keys, const float* values) const {
  for (int64_t h = 0; h < heads_; ++h)
    for (int64_t slot = first; slot < first + n; ++slot)
      for (int64_t j = 0; j < width_; ++j) {
        Save(type_, *keys++, scales.key, Key(layer) + ((h * width_ + j) * slots_ + slot) * element_);
        Save(type_, *values++, scales.value, Value(layer) + ((h * slots_ + slot) * width_ + j) * element_);
      }
}

Status StaticSession::Bind(const Bound& b) {
  const OrtApi& api = session_.runtime->api();
  SLM_ASSIGN_OR_RETURN(Value v, Make<Value>(api, [&](auto** out) {
                         return api.CreateTensorWithDataAsOrtValue(memory_.get(), b.data, static_cast<size_t>(b.bytes), b.dims.data(),
                                                                   b.dims.size(), b.type, out);
                       }));
  SLM_RETURN_IF_ERROR(Check(api, b.way == Way::kIn ? api.BindInput(binding_.get(), b.name.c_str(), v.get())
                                                   : api.BindOutput(binding_.get(), b.name.c_str(), v.get())));
  values_.push_back(std::move(v));
  return Ok();
}

Status StaticSession::BindInputs(const StaticDecoder& d) {
  for (const StaticInput& i : d.inputs) {
    Feed feed{&i, {}};
    const std::vector<int64_t> dims = DimsOf(i, input_type_, tokens_, slots_);
    const int64_t bytes = Product(dims) * BytesOf(input_type_);
    SLM_ASSIGN_OR_RETURN(feed.buffer, Buffer::Allocate(static_cast<size_t>(bytes)));
    SLM_RETURN_IF_ERROR(Bind({Way::kIn, i.name, ElementOf(input_type_), dims, feed.buffer.data(), bytes}));
    feeds_.push_back(std::move(feed));
  }
  return Ok();
}

Status StaticSession::BindOutputs(const StaticDecoder& d) {
  const int64_t logits[] = {1, tokens_, d.vocab_size};
  SLM_ASSIGN_OR_RETURN(logits_, Buffer::Allocate(static_cast<size_t>(Product(logits)) * sizeof(float)));
  SLM_RETURN_IF_ERROR(
      Bind({Way::kOut, d.logits, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, logits, logits_.data(), static_cast<int64_t>(logits_.size())}));
  const int64_t keys[] = {1, d.n_kv_heads, d.head_dim, tokens_}, values[] = {1, d.n_kv_heads, tokens_, d.head_dim};
  const int64_t bytes = Product(keys) * BytesOf(d.cache_type);
  const size_t stride = AlignUp(static_cast<size_t>(bytes), 64);
  SLM_ASSIGN_OR_RETURN(entries_, Buffer::Allocate(stride * 2 * static_cast<size_t>(layers_)));
  for (int layer = 0; layer < layers_; ++layer) {
    std::byte* at = entries_.data() + 2 * static_cast<size_t>(layer) * stride;
    SLM_RETURN_IF_ERROR(Bind({Way::kOut, OfLayer(d.key, layer), ElementOf(d.cache_type), keys, at, bytes}));
    SLM_RETURN_IF_ERROR(Bind({Way::kOut, OfLayer(d.value, layer), ElementOf(d.cache_type), values, at + stride, bytes}));
    new_keys_.push_back(at);
    new_values_.push_back(at + stride);
  }
  return Ok();
}

Status StaticSession::BindCache(const StaticDecoder& d, const StaticCache& cache) {
  const int64_t keys[] = {1, d.n_kv_heads, d.head_dim, d.context}, values[] = {1, d.n_kv_heads, d.context, d.head_dim};
  for (int layer = 0; layer < layers_; ++layer) {
    const std::string key = OfLayer(d.past_key, layer), value = OfLayer(d.past_value, layer);
    SLM_RETURN_IF_ERROR(Bind({Way::kIn, key, ElementOf(d.cache_type), keys, cache.Key(layer), cache.part_bytes()}));
    SLM_RETURN_IF_ERROR(Bind({Way::kIn, value, ElementOf(d.cache_type), values, cache.Value(layer), cache.part_bytes()}));
  }
  return Ok();
}

namespace {

// Every port of the session is one of the description, with its type and shape.
Status CheckPorts(const OpenSession& session, const StaticDecoder& d, int64_t tokens) {
  SLM_ASSIGN_OR_RETURN(SessionPorts ports, ReadPorts(session.runtime->api(), session.session.get()));
  for (const StaticInput& i : d.inputs)
    SLM_RETURN_IF_ERROR(Expect(ports.inputs, i.name, ElementOf(d.input_type), DimsOf(i, d.input_type, tokens, d.context)));
  const auto cache = ElementOf(d.cache_type);
  for (int layer = 0; layer < d.n_layers; ++layer) {
    const auto keys = [&](int64_t n) { return std::array<int64_t, 4>{1, d.n_kv_heads, d.head_dim, n}; };
    const auto values = [&](int64_t n) { return std::array<int64_t, 4>{1, d.n_kv_heads, n, d.head_dim}; };
    SLM_RETURN_IF_ERROR(Expect(ports.inputs, OfLayer(d.past_key, layer), cache, keys(d.context)));
    SLM_RETURN_IF_ERROR(Expect(ports.inputs, OfLayer(d.past_value, layer), cache, values(d.context)));
    SLM_RETURN_IF_ERROR(Expect(ports.outputs, OfLayer(d.key, layer), cache, keys(tokens)));
    SLM_RETURN_IF_ERROR(Expect(ports.outputs, OfLayer(d.value, layer), cache, values(tokens)));
  }
  const int64_t logits[] = {1, tokens, d.vocab_size};
  SLM_RETURN_IF_ERROR(Expect(ports.outputs, d.logits, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, logits));
  for (const auto* rest : {&ports.inputs, &ports.outputs})
    if (!rest->empty())
      return Error(Code::kUnsupported, OneLine((*rest)[0].name) + " of the graph has no place in the description",
                   "export the folder again with slm export --to qdq");
  return Ok();
}

}  // namespace

Result<StaticSession> StaticSession::Create(OpenSession session, const StaticDecoder& d, const StaticGraph& graph,
                                            const StaticCache& cache) {
  SLM_RETURN_IF_ERROR(CheckPorts(session, d, graph.tokens));
  StaticSession s;
  s.session_ = std::move(session);
  s.tokens_ = graph.tokens, s.slots_ = d.context, s.layers_ = d.n_layers, s.input_type_ = d.input_type;
  const OrtApi& api = s.session_.runtime->api();
  OrtSession* raw = s.session_.session.get();
  SLM_ASSIGN_OR_RETURN(
      s.memory_, Make<MemoryInfo>(api, [&](auto** out) { return api.CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, out); }));
  SLM_ASSIGN_OR_RETURN(s.run_options_, Make<RunOptions>(api, [&](auto** out) { return api.CreateRunOptions(out); }));
  SLM_ASSIGN_OR_RETURN(s.binding_, Make<Binding>(api, [&](auto** out) { return api.CreateIoBinding(raw, out); }));
  SLM_RETURN_IF_ERROR(s.BindInputs(d));
  SLM_RETURN_IF_ERROR(s.BindOutputs(d));
  SLM_RETURN_IF_ERROR(s.BindCache(d, cache));
  return s;
}

void StaticSession::Fill(const Feed& feed, std::span<const int32_t> tokens, int first) const {
  const StaticInput& i = *feed.input;
  if (i.rows == StaticInput::Rows::kMask) {
    if (input_type_ == StaticType::kF32) FillMask(feed.buffer.as<float>(), i, slots_, tokens_, first);
    else if (input_type_ == StaticType::kU16) FillMask(feed.buffer.as<uint16_t>(), i, slots_, tokens_, first);
    else FillMask(feed.buffer.as<int16_t>(), i, slots_, tokens_, first);
    return;
  }
  // What fills up a chunk is any token at any position: nothing of it is read.
  const auto bytes = static_cast<size_t>(i.table.row_bytes);
  for (int n = 0; n < tokens_; ++n) {
    const auto at = static_cast<size_t>(n);
    const int64_t row = i.rows == StaticInput::Rows::kToken ? (at < tokens.size() ? tokens[at] : 0) : std::min(first + n, slots_ - 1);
    std::memcpy(feed.buffer.data() + at * bytes, i.table.bytes.data() + static_cast<size_t>(row) * bytes, bytes);
  }
}

Status StaticSession::Run(std::span<const int32_t> tokens, int first, const StaticCache& cache) {
  const int n = static_cast<int>(tokens.size());
  SLM_ASSERT(n >= 1 && n <= tokens_ && first + n <= slots_);
  for (const Feed& feed : feeds_) Fill(feed, tokens, first);
  const OrtApi& api = session_.runtime->api();
  SLM_RETURN_IF_ERROR(Check(api, api.RunWithBinding(session_.session.get(), run_options_.get(), binding_.get())));
  for (int layer = 0; layer < layers_; ++layer) {
    const auto at = static_cast<size_t>(layer);
    cache.Store(layer, first, n, tokens_, new_keys_[at], new_values_[at]);
  }
  return Ok();
}

int64_t StaticSession::bytes() const {
  size_t n = logits_.size() + entries_.size();
  for (const Feed& f : feeds_) n += f.buffer.size();
  return static_cast<int64_t>(n);
}

}  // namespace slm::backend::ort
