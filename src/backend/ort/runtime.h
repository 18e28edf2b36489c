// The one environment of ONNX Runtime, and the providers it knows. Internal to ort/.
#pragma once
#include <string>
#include <vector>

#include "backend/ort/api.h"
#include "backend/ort/ort.h"

namespace slm::backend::ort {

inline constexpr const char* kCpuProvider = "CPUExecutionProvider";

class Runtime {
 public:
  static Result<std::shared_ptr<Runtime>> Open(const RuntimeOptions& options);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const OrtApi& api() const { return *library_.api; }
  OrtEnv* env() const { return env_.get(); }
  const Library& loaded() const { return library_; }
  int n_threads() const { return n_threads_; }
  // Another table of functions, which must outlive everything that is made with it: a test looks at the calls.
  void SetApiForTest(const OrtApi& api) { library_.api = &api; }

  struct Device {
    const OrtEpDevice* handle = nullptr;  // owned by the environment
    Provider provider;
    bool is_virtual = false;  // stands for hardware that is not here: can compile, not run
  };
  // Errors: what the runtime says.
  Result<std::vector<Device>> Devices() const;

 private:
  Runtime() = default;
  Library library_;
  int n_threads_ = 1;
  Env env_;
  std::vector<std::string> registered_;
};

}  // namespace slm::backend::ort
