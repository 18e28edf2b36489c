// Says it is ONNX Runtime 1.20 and offers nothing.
#include <onnxruntime_c_api.h>

namespace {
const OrtApi* GetApi(uint32_t) noexcept { return nullptr; }
const char* GetVersionString() noexcept { return "1.20.1"; }
constexpr OrtApiBase kBase{GetApi, GetVersionString};
}  // namespace

extern "C" __attribute__((visibility("default"))) const OrtApiBase* OrtGetApiBase() noexcept { return &kBase; }
