// See coded_cache.h. Formats after onnxruntime's docs/ContribOperators.md.
#include "reference/microsoft/coded_cache.h"

#include <cmath>

namespace slm::reference {
namespace {

// The scale's steps over [B, H, S, D].
Result<Dims> ScaleSteps(const Array& scale, const Dims& dims) {
  SLM_ASSIGN_OR_RETURN(const Dims joined, BroadcastShape(scale.dims, dims));
  if (joined != dims) return Wrong("a scale of the cache that does not fit it");
  return BroadcastStrides(scale.dims, dims);
}

}  // namespace

Result<CodedCache> CodedCacheOf(const Call& c, size_t k_scale, size_t v_scale) {
  CodedCache cache;
  cache.bits = c.Int("kv_cache_bit_width", 0);
  if (cache.bits == 0 && !c.Optional(k_scale) && !c.Optional(v_scale)) return cache;
  if (cache.bits != 4 && cache.bits != 8) return Refuse(fmt::format("a cache of {} bits", cache.bits));
  for (const char* side : {"k_quant_type", "v_quant_type"})
    if (c.Text(side, "NONE") == "NONE") return Refuse("a cache of codes on one side only");
  SLM_ASSIGN_OR_RETURN(cache.scales[0], c.In(k_scale, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(cache.scales[1], c.In(v_scale, Accept::kFloat));
  return cache;
}

Result<Array> CacheValues(const CodedCache& cache, size_t side, const Array& codes) {
  if (codes.type != (cache.bits == 8 ? ElementType::kInt8 : ElementType::kUint8) || codes.dims.size() != 4)
    return Refuse(fmt::format("a cache of {} bits in type {}", cache.bits, onnx::Info(codes.type).name));
  Dims dims = codes.dims;
  if (cache.bits == 4) dims[3] *= 2;
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(ElementType::kDouble, dims));
  SLM_ASSIGN_OR_RETURN(const Dims steps, ScaleSteps(*cache.scales[side], dims));
  Walk(dims, {steps}, [&](int64_t at, const Dims& from) {
    const int64_t code =
        cache.bits == 8 ? codes.i[static_cast<size_t>(at)] : (codes.i[static_cast<size_t>(at / 2)] >> (at % 2 * 4) & 15) - 8;
    y.f[static_cast<size_t>(at)] = static_cast<double>(code) * Number(*cache.scales[side], from[0]);
  });
  return y;
}

Result<Array> CacheCodes(const CodedCache& cache, size_t side, const Array& values) {
  Dims dims = values.dims;
  if (cache.bits == 4 && dims[3] % 2 != 0) return Wrong("heads of an odd width do not fill bytes");
  if (cache.bits == 4) dims[3] /= 2;
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(cache.bits == 8 ? ElementType::kInt8 : ElementType::kUint8, dims));
  SLM_ASSIGN_OR_RETURN(const Dims steps, ScaleSteps(*cache.scales[side], values.dims));
  const double most = cache.bits == 8 ? 127 : 7;
  Walk(values.dims, {steps}, [&](int64_t at, const Dims& from) {
    const double code = std::nearbyint(Number(values, at) / Number(*cache.scales[side], from[0]));
    const int64_t near = std::isnan(code) ? 0 : static_cast<int64_t>(std::fmin(std::fmax(code, -most - 1), most));
    if (cache.bits == 8) y.i[static_cast<size_t>(at)] = near;
    else y.i[static_cast<size_t>(at / 2)] |= (near + 8) << (at % 2 * 4);
  });
  return y;
}

}  // namespace slm::reference
