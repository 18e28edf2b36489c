// An execution provider for tests: it takes products of f32 tensors with constant matrices, and nothing else. So every graph has nodes that
// it lacks, and a test can say which. Plain C interface; a product is computed in double, so that answers do not depend on its order.
#include <onnxruntime_c_api.h>

#include <atomic>
#include <cstring>
#include <vector>

namespace {

constexpr const char* kName = "SlmTestExecutionProvider";

struct Apis {
  const OrtApi* ort = nullptr;
  const OrtEpApi* ep = nullptr;
};

#define RETURN_IF_FAILED(expr) \
  if (OrtStatus* failed = (expr)) return failed

std::vector<int64_t> DimsOf(const OrtApi& api, const OrtValue* value) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  size_t n = 0;
  std::vector<int64_t> dims;
  if (OrtStatus* failed = api.GetTensorTypeAndShape(value, &info)) {
    api.ReleaseStatus(failed);
    return dims;
  }
  if (OrtStatus* failed = api.GetDimensionsCount(info, &n)) api.ReleaseStatus(failed);
  dims.resize(n);
  if (OrtStatus* failed = api.GetDimensions(info, dims.data(), n)) api.ReleaseStatus(failed);
  api.ReleaseTensorTypeAndShapeInfo(info);
  return dims;
}

std::atomic<int> compilations{0};  // nodes that were compiled since the library was opened

struct Product : OrtNodeComputeInfo {
  explicit Product(const OrtApi& a) : OrtNodeComputeInfo{}, api(a) {
    ort_version_supported = ORT_API_VERSION;
    CreateState = [](OrtNodeComputeInfo* self, OrtNodeComputeContext*, void** state) -> OrtStatus* {
      *state = self;
      return nullptr;
    };
    Compute = [](OrtNodeComputeInfo* self, void*, OrtKernelContext* context) { return Run(static_cast<Product*>(self)->api, context); };
    ReleaseState = [](OrtNodeComputeInfo*, void*) {};
  }

  // y [..., N] = x [..., K] * b [K, N]
  static OrtStatus* Run(const OrtApi& api, OrtKernelContext* context) {
    const OrtValue *x = nullptr, *b = nullptr;
    RETURN_IF_FAILED(api.KernelContext_GetInput(context, 0, &x));
    RETURN_IF_FAILED(api.KernelContext_GetInput(context, 1, &b));
    std::vector<int64_t> dims = DimsOf(api, x);
    const std::vector<int64_t> matrix = DimsOf(api, b);
    if (dims.empty() || matrix.size() != 2 || dims.back() != matrix[0]) return api.CreateStatus(ORT_EP_FAIL, "shapes of a product");
    const int64_t k = matrix[0], n = matrix[1];
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < dims.size(); ++i) rows *= dims[i];
    dims.back() = n;
    OrtValue* y = nullptr;
    const void *x_data = nullptr, *b_data = nullptr;
    void* y_data = nullptr;
    RETURN_IF_FAILED(api.KernelContext_GetOutput(context, 0, dims.data(), dims.size(), &y));
    RETURN_IF_FAILED(api.GetTensorData(x, &x_data));
    RETURN_IF_FAILED(api.GetTensorData(b, &b_data));
    RETURN_IF_FAILED(api.GetTensorMutableData(y, &y_data));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t i = 0; i < k; ++i)
          sum += static_cast<double>(static_cast<const float*>(x_data)[r * k + i]) * static_cast<const float*>(b_data)[i * n + j];
        static_cast<float*>(y_data)[r * n + j] = static_cast<float>(sum);
      }
    return nullptr;
  }

  const OrtApi& api;
};

struct TestProvider : OrtEp {
  explicit TestProvider(const Apis& a) : OrtEp{}, apis(a) {
    ort_version_supported = ORT_API_VERSION;
    GetName = [](const OrtEp*) noexcept { return kName; };
    GetCapability = [](OrtEp* self, const OrtGraph* graph, OrtEpGraphSupportInfo* support) noexcept {
      return Take(static_cast<TestProvider*>(self)->apis, graph, support);
    };
    Compile = [](OrtEp* self, const OrtGraph**, const OrtNode**, size_t n, OrtNodeComputeInfo** out, OrtNode**) noexcept -> OrtStatus* {
      compilations.fetch_add(static_cast<int>(n));
      for (size_t i = 0; i < n; ++i) out[i] = new Product(*static_cast<TestProvider*>(self)->apis.ort);
      return nullptr;
    };
    ReleaseNodeComputeInfos = [](OrtEp*, OrtNodeComputeInfo** list, size_t n) noexcept {
      for (size_t i = 0; i < n; ++i) delete static_cast<Product*>(list[i]);
    };
  }

  static OrtStatus* Take(const Apis& a, const OrtGraph* graph, OrtEpGraphSupportInfo* support) {
    size_t n = 0;
    RETURN_IF_FAILED(a.ort->Graph_GetNumNodes(graph, &n));
    std::vector<const OrtNode*> nodes(n);
    RETURN_IF_FAILED(a.ort->Graph_GetNodes(graph, nodes.data(), n));
    OrtNodeFusionOptions fusion{};
    fusion.ort_version_supported = ORT_API_VERSION;
    for (const OrtNode* node : nodes) {
      bool taken = false;
      RETURN_IF_FAILED(IsProduct(a, node, &taken));
      if (taken) RETURN_IF_FAILED(a.ep->EpGraphSupportInfo_AddNodesToFuse(support, &node, 1, &fusion));
    }
    return nullptr;
  }

  static OrtStatus* IsProduct(const Apis& a, const OrtNode* node, bool* out) {
    const char *op = nullptr, *domain = nullptr;
    size_t n = 0;
    RETURN_IF_FAILED(a.ort->Node_GetOperatorType(node, &op));
    RETURN_IF_FAILED(a.ort->Node_GetDomain(node, &domain));
    RETURN_IF_FAILED(a.ort->Node_GetNumInputs(node, &n));
    *out = false;
    if (std::strcmp(op, "MatMul") != 0 || domain[0] != 0 || n != 2) return nullptr;
    const OrtValueInfo* inputs[2] = {};
    const OrtTypeInfo* type = nullptr;
    const OrtTensorTypeAndShapeInfo* tensor = nullptr;
    ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    size_t rank = 0;
    bool constant = false;
    RETURN_IF_FAILED(a.ort->Node_GetInputs(node, inputs, 2));
    RETURN_IF_FAILED(a.ort->ValueInfo_IsConstantInitializer(inputs[1], &constant));
    RETURN_IF_FAILED(a.ort->GetValueInfoTypeInfo(inputs[1], &type));
    RETURN_IF_FAILED(a.ort->CastTypeInfoToTensorInfo(type, &tensor));
    RETURN_IF_FAILED(a.ort->GetTensorElementType(tensor, &element));
    RETURN_IF_FAILED(a.ort->GetDimensionsCount(tensor, &rank));
    *out = constant && rank == 2 && element == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
    return nullptr;
  }

  Apis apis;
};

struct Factory : OrtEpFactory {
  explicit Factory(const Apis& a) : OrtEpFactory{}, apis(a) {
    ort_version_supported = ORT_API_VERSION;
    GetName = [](const OrtEpFactory*) noexcept { return kName; };
    GetVendor = [](const OrtEpFactory*) noexcept { return "slm"; };
    GetVendorId = [](const OrtEpFactory*) noexcept { return uint32_t{0}; };
    GetVersion = [](const OrtEpFactory*) noexcept { return "1.0.0"; };
    GetSupportedDevices = [](OrtEpFactory* self, const OrtHardwareDevice* const* devices, size_t n, OrtEpDevice** out, size_t most,
                             size_t* count) noexcept -> OrtStatus* {
      const Apis& known = static_cast<Factory*>(self)->apis;
      *count = 0;
      for (size_t i = 0; i < n && *count < most; ++i)
        if (known.ort->HardwareDevice_Type(devices[i]) == OrtHardwareDeviceType_CPU) {
          RETURN_IF_FAILED(known.ep->CreateEpDevice(self, devices[i], nullptr, nullptr, &out[*count]));
          ++*count;
        }
      return nullptr;
    };
    CreateEp = [](OrtEpFactory* self, const OrtHardwareDevice* const*, const OrtKeyValuePairs* const*, size_t, const OrtSessionOptions*,
                  const OrtLogger*, OrtEp** out) noexcept -> OrtStatus* {
      *out = new TestProvider(static_cast<Factory*>(self)->apis);
      return nullptr;
    };
    ReleaseEp = [](OrtEpFactory*, OrtEp* ep) noexcept { delete static_cast<TestProvider*>(ep); };
    // ONNX Runtime 1.31 calls these without looking whether they are there.
    CreateAllocator = [](OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*, OrtAllocator** out) noexcept -> OrtStatus* {
      *out = nullptr;
      return nullptr;
    };
    ReleaseAllocator = [](OrtEpFactory*, OrtAllocator*) noexcept {};
    CreateDataTransfer = [](OrtEpFactory*, OrtDataTransferImpl** out) noexcept -> OrtStatus* {
      *out = nullptr;
      return nullptr;
    };
    IsStreamAware = [](const OrtEpFactory*) noexcept { return false; };
  }

  Apis apis;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) int SlmTestCompilations() { return compilations.load(); }

extern "C" __attribute__((visibility("default"))) OrtStatus* CreateEpFactories(const char*, const OrtApiBase* base, const OrtLogger*,
                                                                               OrtEpFactory** factories, size_t most, size_t* count) {
  Apis a;
  a.ort = base->GetApi(ORT_API_VERSION);
  if (!a.ort) return base->GetApi(1)->CreateStatus(ORT_FAIL, "made for a newer ONNX Runtime");
  a.ep = a.ort->GetEpApi();
  if (most < 1) return a.ort->CreateStatus(ORT_INVALID_ARGUMENT, "no room for a factory");
  factories[0] = new Factory(a);
  *count = 1;
  return nullptr;
}

extern "C" __attribute__((visibility("default"))) OrtStatus* ReleaseEpFactory(OrtEpFactory* factory) {
  delete static_cast<Factory*>(factory);
  return nullptr;
}
