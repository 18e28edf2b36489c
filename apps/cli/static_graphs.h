// What opening and compiling a folder of static graphs share: its files are looked at first, its graphs get their providers' options, and
// what was compiled of them is found again.
#pragma once
#include <string>
#include <vector>

#include "backend/ort/ort.h"
#include "base/result.h"
#include "compiled_folder.h"
#include "onnx/static_folder/static_folder.h"
#include "open_model.h"

namespace slm::cli {

// OrtChoice with the options that these graphs want; the user's own win.
Result<backend::ort::Choice> StaticChoice(const OrtFlags& flags, const std::string& device, Fallback fallback);

// ONNX Runtime reads what is there: zeros as weights, or graphs of another export, would be answers like any other. The sums, when the
// files have those of the manifest. Errors: kCorrupt, kIo.
Result<KnownSums> CheckSums(const onnx::StaticFolder& folder);

// The same for external data that a graph of the folder reads. Errors: kCorrupt (a file without a sum).
Status CheckExternalData(const onnx::StaticFolder& folder, const onnx::Model& graph, const KnownSums& sums);

// What slm compile made of a folder's graph for this choice, if anything: looked for in the folder's own "contexts" and in the store's.
// Where it made something else, or it is damaged, `why` says what. A choice that no provider serves has nothing compiled: an empty `graph`.
GraphContext FindGraphContext(const Io& io, const backend::ort::Runtime& runtime, const backend::ort::Choice& choice,
                              const onnx::Model& graph, const KnownSums& sums);

}  // namespace slm::cli
