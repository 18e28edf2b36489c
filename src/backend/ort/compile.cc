// Graphs compiled ahead of time by an execution provider: EPContext nodes with binaries beside them.
//
// A provider may load a damaged or foreign binary without a word, so what is compiled here is for callers who keep a record of it and
// compare before they load.
#include <memory>

#include "backend/ort/ort.h"
#include "backend/ort/session.h"

namespace slm::backend::ort {
namespace {

Result<Candidate> FirstCandidate(const Runtime& runtime, const Choice& choice) {
  std::vector<std::string> notes;
  SLM_ASSIGN_OR_RETURN(std::vector<Candidate> all, Candidates(runtime, choice, notes));
  if (!all.empty()) return std::move(all.front());
  std::string why;
  for (const std::string& note : notes) why += (why.empty() ? ": " : "; ") + note;
  return Error(Code::kUnavailable, "no execution provider to compile with" + why,
               "name one with --device, and its library with --ep-library");
}

}  // namespace

Result<Provider> FirstProvider(const Runtime& runtime, const Choice& choice) {
  SLM_ASSIGN_OR_RETURN(Candidate c, FirstCandidate(runtime, choice));
  return std::move(c.provider);
}

Status CompileContext(const Runtime& runtime, const std::string& path, const Choice& choice, const std::string& out) {
  const OrtApi& api = runtime.api();
  SLM_ASSIGN_OR_RETURN(const Candidate candidate, FirstCandidate(runtime, choice));
  SessionLog log;
  SLM_ASSIGN_OR_RETURN(const SessionOptions so, BaseOptions(runtime, log, {}));
  SLM_RETURN_IF_ERROR(Append(runtime, so.get(), candidate, choice));
  const OrtCompileApi* compiler = api.GetCompileApi();
  if (!compiler) return Error(Code::kUnsupported, "this ONNX Runtime was built without a compiler", "./dev ort fetches one that has it");
  OrtModelCompilationOptions* made = nullptr;
  SLM_RETURN_IF_ERROR(Check(api, compiler->CreateModelCompilationOptionsFromSessionOptions(runtime.env(), so.get(), &made)));
  const std::unique_ptr<OrtModelCompilationOptions, ReleaseCompilation> options(made, {compiler});
  SLM_RETURN_IF_ERROR(Check(api, compiler->ModelCompilationOptions_SetInputModelPath(options.get(), path.c_str())));
  SLM_RETURN_IF_ERROR(Check(api, compiler->ModelCompilationOptions_SetOutputModelPath(options.get(), out.c_str())));
  // A message holds 2 GiB at most: the binary goes beside it.
  SLM_RETURN_IF_ERROR(Check(api, compiler->ModelCompilationOptions_SetEpContextEmbedMode(options.get(), false)));
  SLM_RETURN_IF_ERROR(Check(api, compiler->ModelCompilationOptions_SetFlags(options.get(), OrtCompileApiFlags_ERROR_IF_NO_NODES_COMPILED)));
  if (const Status s = Check(api, compiler->CompileModel(runtime.env(), options.get())); !s.ok()) {
    const std::vector<std::string> said = log.Take();
    return Error(s.error().code(), candidate.name + ": " + path + ": " + s.error().message() + (said.empty() ? "" : "; " + said.front()),
                 "slm devices --place FILE shows which nodes the provider takes; most want fixed shapes");
  }
  return Ok();
}

Result<ContextFit> FitOfContext(const Runtime& runtime, const Choice& choice, const std::string& compatibility_info) {
  SLM_ASSIGN_OR_RETURN(const Candidate c, FirstCandidate(runtime, choice));
  // Of a device that only stands in for its hardware nothing can be said; Qualcomm's provider fails or crashes when it is asked.
  if (c.device == "cpu") return ContextFit::kNotSaid;
  OrtCompiledModelCompatibility fit = OrtCompiledModelCompatibility_EP_NOT_APPLICABLE;
  SLM_RETURN_IF_ERROR(Check(runtime.api(), runtime.api().GetModelCompatibilityForEpDevices(c.devices.data(), c.devices.size(),
                                                                                           compatibility_info.c_str(), &fit)));
  switch (fit) {
    case OrtCompiledModelCompatibility_EP_SUPPORTED_OPTIMAL: return ContextFit::kFits;
    case OrtCompiledModelCompatibility_EP_SUPPORTED_PREFER_RECOMPILATION: return ContextFit::kBetterAnew;
    case OrtCompiledModelCompatibility_EP_UNSUPPORTED: return ContextFit::kNot;
    default: return ContextFit::kNotSaid;
  }
}

}  // namespace slm::backend::ort
