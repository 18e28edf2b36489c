// See runtime.h.
#include "backend/ort/runtime.h"

#include <algorithm>
#include <filesystem>

#include "base/threads.h"
#include "model/quoted.h"

namespace slm::backend::ort {
namespace {

// Messages of the environment are dropped: a session has a log of its own, and nothing here writes to the terminal.
void Drop(void*, OrtLoggingLevel, const char*, const char*, const char*, const char*) {}

std::string Text(const char* s) { return s ? model::PrintableUtf8(s, 200) : std::string(); }

const char* DeviceName(OrtHardwareDeviceType type) {
  switch (type) {
    case OrtHardwareDeviceType_GPU: return "gpu";
    case OrtHardwareDeviceType_NPU: return "npu";
    default: return "cpu";
  }
}

}  // namespace

Result<std::shared_ptr<Runtime>> Runtime::Open(const RuntimeOptions& options) {
  std::shared_ptr<Runtime> r(new Runtime);
  SLM_ASSIGN_OR_RETURN(r->library_, OpenLibrary(options.places));
  const OrtApi& api = r->api();
  r->n_threads_ = options.n_threads;
  SLM_ASSIGN_OR_RETURN(const ThreadingOptions threads,
                       Make<ThreadingOptions>(api, [&](auto** out) { return api.CreateThreadingOptions(out); }));
  SLM_RETURN_IF_ERROR(Check(api, api.SetGlobalIntraOpNumThreads(threads.get(), options.n_threads)));
  SLM_RETURN_IF_ERROR(Check(api, api.SetGlobalInterOpNumThreads(threads.get(), 1)));
  if (options.n_threads > DefaultThreadCount())  // more than can run: waiting by spinning would take the time of those that work
    SLM_RETURN_IF_ERROR(Check(api, api.SetGlobalSpinControl(threads.get(), 0)));
  SLM_ASSIGN_OR_RETURN(r->env_, Make<Env>(api, [&](auto** out) {
                         return api.CreateEnvWithCustomLoggerAndGlobalThreadPools(Drop, nullptr, ORT_LOGGING_LEVEL_WARNING, "slm",
                                                                                  threads.get(), out);
                       }));
  SLM_RETURN_IF_ERROR(Check(api, api.DisableTelemetryEvents(r->env())));
  for (const ProviderLibrary& lib : options.providers) {
    // ONNX Runtime looks for a relative path beside itself.
    std::error_code failed;
    const std::string path = std::filesystem::absolute(lib.path, failed).string();
    if (failed || !std::filesystem::is_regular_file(path, failed))
      return Error(Code::kNotFound, lib.path + ": no such library", "name the file of an execution provider, as in NAME=PATH");
    // The environment is one for the process: another runtime of it may have the library, and goes later than this one.
    SLM_ASSIGN_OR_RETURN(const auto known, r->Devices());
    if (std::any_of(known.begin(), known.end(), [&](const Device& d) { return d.provider.file == Text(path.c_str()); })) continue;
    if (const Status s = Check(api, api.RegisterExecutionProviderLibrary(r->env(), lib.name.c_str(), path.c_str())); !s.ok())
      return Error(Code::kIo, lib.path + ": " + s.error().message(), "the library is damaged, or made for another ONNX Runtime");
    r->registered_.push_back(lib.name);
  }
  return r;
}

Runtime::~Runtime() {
  // Sessions hold the runtime, so none is left.
  for (const std::string& name : registered_) (void)Check(api(), api().UnregisterExecutionProviderLibrary(env(), name.c_str()));
}

Result<std::vector<Runtime::Device>> Runtime::Devices() const {
  const OrtEpDevice* const* list = nullptr;
  size_t n = 0;
  SLM_RETURN_IF_ERROR(Check(api(), api().GetEpDevices(env(), &list, &n)));
  std::vector<Device> out;
  for (size_t i = 0; i < n; ++i) {
    Device d;
    d.handle = list[i];
    d.provider.name = Text(api().EpDevice_EpName(list[i]));
    d.provider.vendor = Text(api().EpDevice_EpVendor(list[i]));
    const OrtHardwareDevice* hardware = api().EpDevice_Device(list[i]);
    d.provider.device = DeviceName(api().HardwareDevice_Type(hardware));
    const OrtKeyValuePairs* about = api().EpDevice_EpMetadata(list[i]);
    d.provider.version = Text(api().GetKeyValue(about, "version"));
    d.provider.file = Text(api().GetKeyValue(about, "library_path"));
    const char* is_virtual = api().GetKeyValue(api().HardwareDevice_Metadata(hardware), "is_virtual");
    d.is_virtual = is_virtual && std::string(is_virtual) == "1";
    out.push_back(std::move(d));
  }
  return out;
}

Result<std::shared_ptr<Runtime>> OpenRuntime(const RuntimeOptions& options) { return Runtime::Open(options); }

RuntimeInfo Describe(const Runtime& runtime) {
  RuntimeInfo info{runtime.loaded().version, runtime.loaded().path, runtime.loaded().api_version, {}};
  if (const auto devices = runtime.Devices(); devices.ok())
    for (const Runtime::Device& d : devices.value()) info.providers.push_back(d.provider);
  return info;
}

}  // namespace slm::backend::ort
