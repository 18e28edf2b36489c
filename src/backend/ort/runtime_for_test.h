// ONNX Runtime for the tests of this room: where SLM_ORT says, or where ./dev ort put it. Test-only.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "backend/ort/ort.h"

namespace slm::backend::ort {

inline std::string OrtForTest() {
  if (const char* named = std::getenv("SLM_ORT")) return named;
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  return (cache && *cache ? cache : std::string(home ? home : "") + "/.cache") + "/slmkit/onnxruntime";
}

// Null where there is no library, which is a failure only when SLM_NEED_ORT asks for one.
inline std::shared_ptr<Runtime> OpenForTest(std::vector<ProviderLibrary> libraries = {}) {
  auto r = OpenRuntime({.places = {OrtForTest()}, .n_threads = 2, .libraries = std::move(libraries)});
  if (r.ok()) return r.Take();
  EXPECT_EQ(std::getenv("SLM_NEED_ORT"), nullptr) << r.error().message();
  EXPECT_EQ(r.error().code(), Code::kUnavailable) << r.error().message();
  return nullptr;
}

#define SLM_ORT_OR_SKIP(runtime) \
  if (!(runtime)) GTEST_SKIP() << "needs ONNX Runtime: ./dev ort fetches it"

// A tiny Qwen3 as `slm export tests/tiny/models/qwen3 --to genai --exact --ctx 64` writes it.
inline Decoder TinyDecoder() {
  Decoder d;
  d.path = std::string(SLM_SOURCE_DIR) + "/tests/tiny/models/genai_qwen3/model.onnx";
  d.context = 64;
  d.n_layers = 2;
  d.vocab_size = 96;
  return d;
}

}  // namespace slm::backend::ort
