// Graphs that an execution provider compiled, kept with a record, and never loaded without it.
//
// A provider may load a binary with a flipped byte, or one made for other hardware, without a word and answer wrongly. So each folder of
// the cache holds record.json: what it was made of, and the SHA-256 of every file. A file with EPContext nodes is opened only when its
// record agrees with the bytes that lie there and the provider does not refuse what it wrote into the file.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "backend/ort/ort.h"
#include "base/result.h"
#include "compiled_folder.h"
#include "onnx/onnx.h"
#include "verb.h"

namespace slm::cli {

inline constexpr const char* kContexts = "contexts";  // folder of compiled graphs: in the store, and beside static graphs

struct Context {
  std::string model;                   // path of the compiled ONNX file
  std::vector<std::string> artifacts;  // paths of all files, record.json included
  std::string provider, compatibility;
  nlohmann::ordered_json origin;
  bool cached = false;
  std::string why;  // what was wrong with the one that lay there, if it was made anew
};

// Everything that a compiled graph depends on and that is known before it is made: bytes of the model and its external data, provider with
// version and library, options, version of the runtime. Errors: kUnavailable (no such provider), kIo.
Result<nlohmann::ordered_json> ContextOrigin(const backend::ort::Runtime& runtime, const backend::ort::Choice& choice, const onnx::Model& m,
                                             const KnownSums& known);

// The compiled form of that origin in the first of the cache folders that has a sound one. Nothing is made.
struct FoundContext {
  std::optional<Context> context;
  std::string why;  // of the first that lies there and is not used
};
FoundContext FindContext(const backend::ort::Runtime& runtime, const backend::ort::Choice& choice, const nlohmann::ordered_json& origin,
                         const std::vector<std::string>& caches);

// The compiled form of the ONNX file at `path`, from the folder `cache` or made now. Its key is the origin. Errors: kUnavailable (no such
// provider, or another slm is making it), kUnsupported, kIo.
struct ContextRequest {
  std::string path;
  backend::ort::Choice choice;
  std::string cache;
  KnownSums sums = {};  // of files beside `path`, and its own
};
Result<Context> CompiledContext(const Io& io, const backend::ort::Runtime& runtime, const ContextRequest& request);

// May this ONNX file be given to the runtime? Files without EPContext nodes may. Errors: kCorrupt (no record, or bytes that differ from
// it), kUnsupported (the provider refuses it on this device).
Status CheckContexts(const onnx::Model& model, const backend::ort::Runtime& runtime, const backend::ort::Choice& choice);

}  // namespace slm::cli
