// See feeds.h.
#include "backend/ort/feeds.h"

#include <array>

#include "base/arena.h"
#include "base/check.h"

namespace slm::backend::ort {
namespace {

template <class T>
void Fill(const Buffer& buffer, std::span<const int32_t> values) {
  T* out = buffer.as<T>();
  for (const int32_t v : values) *out++ = v;
}

void Write(const Buffer& buffer, ONNXTensorElementDataType type, std::span<const int32_t> values) {
  if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64) Fill<int64_t>(buffer, values);
  else Fill<int32_t>(buffer, values);
}

template <class T>
void Count(const Buffer& buffer, int first, size_t n) {
  T* out = buffer.as<T>();
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<T>(first) + static_cast<T>(i);
}

// [1, Hkv, S, D]
std::array<int64_t, 4> CacheDims(const CachePort& c, int context) { return {1, c.past.dims[1], context, c.past.dims[3]}; }

uint64_t CacheBytes(const CachePort& c, int context) {
  return static_cast<uint64_t>(c.past.dims[1]) * static_cast<uint64_t>(c.past.dims[3]) * static_cast<uint64_t>(context) *
         static_cast<uint64_t>(ElementBytes(c.past.type));
}

}  // namespace

Result<CachePlan> PlanCache(const DecoderIo& io, int context) {
  constexpr uint64_t kMost = uint64_t{1} << 46;
  ArenaPlan arena;
  CachePlan plan;
  for (const CachePort& c : io.cache) {
    const uint64_t bytes = CacheBytes(c, context);
    if (bytes > kMost || arena.total() > kMost) return Error(Code::kLimit, "the KV cache is larger than any memory", "reduce the context");
    plan.offsets.push_back(arena.Add(bytes));
  }
  plan.bytes = arena.total();
  return plan;
}

Result<Value> Feeds::Tensor(void* data, size_t bytes, std::span<const int64_t> dims, ONNXTensorElementDataType type) const {
  return Make<Value>(*api_, [&](auto** out) {
    return api_->CreateTensorWithDataAsOrtValue(memory_.get(), data, bytes, dims.data(), dims.size(), type, out);
  });
}

Result<std::vector<Value>> Feeds::Lengths(const Port& port, const Buffer& buffer, int most) const {
  std::vector<Value> out;
  if (port.name.empty()) return out;
  for (int n = 1; n <= most; ++n) {
    const int64_t dims[] = {1, n};
    SLM_ASSIGN_OR_RETURN(Value v,
                         Tensor(buffer.data(), static_cast<size_t>(n) * static_cast<size_t>(ElementBytes(port.type)), dims, port.type));
    out.push_back(std::move(v));
  }
  return out;
}

Status Feeds::BindCache(const DecoderIo& io, const Sizes& sizes) {
  SLM_ASSERT(sizes.cache.offsets.size() == io.cache.size());
  if (io.cache_memory) {
    SLM_ASSIGN_OR_RETURN(device_,
                         Make<Allocator>(*api_, [&](auto** out) { return api_->CreateAllocator(session_, io.cache_memory, out); }));
  } else {
    SLM_ASSIGN_OR_RETURN(cache_, Buffer::Allocate(sizes.cache.bytes));
    cache_at_ = sizes.cache.offsets;
  }
  for (size_t i = 0; i < io.cache.size(); ++i) {
    const CachePort& c = io.cache[i];
    const auto dims = CacheDims(c, sizes.context);
    auto made = device_ ? Make<Value>(*api_,
                                      [&](auto** out) {
                                        return api_->CreateTensorAsOrtValue(device_.get(), dims.data(), dims.size(), c.past.type, out);
                                      })
                        : Tensor(cache_.data() + sizes.cache.offsets[i], CacheBytes(c, sizes.context), dims, c.past.type);
    SLM_ASSIGN_OR_RETURN(Value v, std::move(made));
    SLM_RETURN_IF_ERROR(Check(*api_, api_->BindInput(binding_.get(), c.past.name.c_str(), v.get())));
    SLM_RETURN_IF_ERROR(Check(*api_, api_->BindOutput(binding_.get(), c.present.name.c_str(), v.get())));
    cache_values_.push_back(std::move(v));
  }
  return Ok();
}

Status Feeds::MakeLengths(const DecoderIo& io, const Sizes& s) {
  SLM_ASSIGN_OR_RETURN(ids_, Buffer::Allocate(static_cast<size_t>(s.chunk) * 8));
  SLM_ASSIGN_OR_RETURN(positions_, Buffer::Allocate(static_cast<size_t>(s.chunk) * 8));
  SLM_ASSIGN_OR_RETURN(mask_, Buffer::Allocate(static_cast<size_t>(s.context) * 8));
  SLM_ASSIGN_OR_RETURN(logits_, Buffer::Allocate(static_cast<size_t>(s.logits_rows) * static_cast<size_t>(s.vocab) * 4));
  // One sequence without padding: the mask is all ones, only its length says something.
  const std::vector<int32_t> ones(static_cast<size_t>(s.context), 1);
  Write(mask_, io.mask.type, ones);
  SLM_ASSIGN_OR_RETURN(ids_values_, Lengths(io.ids, ids_, s.chunk));
  SLM_ASSIGN_OR_RETURN(positions_values_, Lengths(io.positions, positions_, s.chunk));
  SLM_ASSIGN_OR_RETURN(mask_values_, Lengths(io.mask, mask_, s.context));
  const size_t row_bytes = static_cast<size_t>(s.vocab) * 4;
  for (int i = 0; i < s.logits_rows; ++i) {
    const int64_t dims[] = {1, last_row_only_ ? 1 : i + 1, s.vocab};
    std::byte* at = logits_.data() + (last_row_only_ ? static_cast<size_t>(i) * row_bytes : 0);
    SLM_ASSIGN_OR_RETURN(Value v, Tensor(at, static_cast<size_t>(dims[1]) * row_bytes, dims, io.logits.type));
    logits_values_.push_back(std::move(v));
  }
  return Ok();
}

Result<Feeds> Feeds::Create(const OrtApi& api, OrtSession* session, const DecoderIo& io, const Sizes& sizes) {
  Feeds f;
  f.api_ = &api;
  f.session_ = session;
  f.ids_name_ = io.ids.name, f.mask_name_ = io.mask.name, f.positions_name_ = io.positions.name, f.logits_name_ = io.logits.name;
  f.ids_type_ = io.ids.type, f.positions_type_ = io.positions.type;
  f.last_row_only_ = io.last_row_only;
  SLM_ASSIGN_OR_RETURN(
      f.memory_, Make<MemoryInfo>(api, [&](auto** out) { return api.CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, out); }));
  SLM_ASSIGN_OR_RETURN(f.run_options_, Make<RunOptions>(api, [&](auto** out) { return api.CreateRunOptions(out); }));
  SLM_ASSIGN_OR_RETURN(f.binding_, Make<Binding>(api, [&](auto** out) { return api.CreateIoBinding(session, out); }));
  SLM_RETURN_IF_ERROR(f.BindCache(io, sizes));
  SLM_RETURN_IF_ERROR(f.MakeLengths(io, sizes));
  return f;
}

Status Feeds::Run(std::span<const int32_t> tokens, int first, int row) {
  const OrtApi& api = *api_;
  const size_t n = tokens.size(), total = static_cast<size_t>(first) + n;
  Write(ids_, ids_type_, tokens);
  SLM_RETURN_IF_ERROR(Check(api, api.BindInput(binding_.get(), ids_name_.c_str(), ids_values_[n - 1].get())));
  if (!mask_values_.empty())
    SLM_RETURN_IF_ERROR(Check(api, api.BindInput(binding_.get(), mask_name_.c_str(), mask_values_[total - 1].get())));
  if (!positions_values_.empty()) {
    if (positions_type_ == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64) Count<int64_t>(positions_, first, n);
    else Count<int32_t>(positions_, first, n);
    SLM_RETURN_IF_ERROR(Check(api, api.BindInput(binding_.get(), positions_name_.c_str(), positions_values_[n - 1].get())));
  }
  const Value& logits = logits_values_[last_row_only_ ? static_cast<size_t>(row) : n - 1];
  SLM_RETURN_IF_ERROR(Check(api, api.BindOutput(binding_.get(), logits_name_.c_str(), logits.get())));
  return Check(api, api.RunWithBinding(session_, run_options_.get(), binding_.get()));
}

}  // namespace slm::backend::ort
