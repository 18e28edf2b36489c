// ONNX Runtime's C interface with owners for what it hands out and errors as values. No exception can come from it. Internal to ort/.
#pragma once
#include <onnxruntime_c_api.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace slm::backend::ort {

template <class T, auto Member>
struct Release {
  const OrtApi* api = nullptr;
  void operator()(T* p) const { (api->*Member)(p); }
};
template <class T, auto Member>
using Owner = std::unique_ptr<T, Release<T, Member>>;

using Env = Owner<OrtEnv, &OrtApi::ReleaseEnv>;
using Session = Owner<OrtSession, &OrtApi::ReleaseSession>;
using SessionOptions = Owner<OrtSessionOptions, &OrtApi::ReleaseSessionOptions>;
using ThreadingOptions = Owner<OrtThreadingOptions, &OrtApi::ReleaseThreadingOptions>;
using Binding = Owner<OrtIoBinding, &OrtApi::ReleaseIoBinding>;
using Value = Owner<OrtValue, &OrtApi::ReleaseValue>;
using MemoryInfo = Owner<OrtMemoryInfo, &OrtApi::ReleaseMemoryInfo>;
using TypeInfo = Owner<OrtTypeInfo, &OrtApi::ReleaseTypeInfo>;
using RunOptions = Owner<OrtRunOptions, &OrtApi::ReleaseRunOptions>;
using Allocator = Owner<OrtAllocator, &OrtApi::ReleaseAllocator>;
using KeyValues = Owner<OrtKeyValuePairs, &OrtApi::ReleaseKeyValuePairs>;

struct ReleaseCompilation {
  const OrtCompileApi* api = nullptr;
  void operator()(OrtModelCompilationOptions* p) const { api->ReleaseModelCompilationOptions(p); }
};

// Takes the status. The message is made fit for one line.
Status Check(const OrtApi& api, OrtStatus* status);

// Call(api, [&](T** out) { return api.CreateX(…, out); }) as an owner.
template <class O, class F>
Result<O> Make(const OrtApi& api, F&& create) {
  typename O::pointer made = nullptr;
  SLM_RETURN_IF_ERROR(Check(api, create(&made)));
  return O(made, {&api});
}

// Text from ONNX Runtime as one printable line.
std::string OneLine(const std::string& text);

struct Library {
  const OrtApi* api = nullptr;
  int api_version = 0;
  std::string version, path;
};
// Opens the first of the places that has the library. It stays open until the process ends: its threads may outlive an environment.
Result<Library> OpenLibrary(const std::vector<std::string>& places);

}  // namespace slm::backend::ort
