// The committed tiny models (tests/tiny/models, made by make_models.py) and how results are compared with them. Test-only.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "model/model.h"

namespace slm::graph::testing {

struct TinyCase {
  std::string name, path;
  std::vector<int> prompt;
  int max_context = 0, rows = 0, vocab = 0;
  double tolerance = 0;
  std::vector<float> logits;  // [rows, vocab]: the last rows of the prompt, from transformers in f32
};

// GoogleTest's name of a case; by default it prints the bytes, padding and all.
inline void PrintTo(const TinyCase& t, std::ostream* out) { *out << t.name; }

inline std::vector<TinyCase> TinyCases() {
  const std::string root = std::string(SLM_SOURCE_DIR) + "/tests/tiny/models/";
  std::ifstream in(root + "expected.json");
  std::vector<TinyCase> cases;
  const nlohmann::json doc = nlohmann::json::parse(in);
  for (const nlohmann::json& c : doc.at("cases")) {
    TinyCase t{c.at("name"),      root + c.at("path").get<std::string>(),
               c.at("prompt"),    c.at("max_context"),
               c.at("rows"),      c.at("vocab"),
               c.at("tolerance"), {}};
    t.logits.resize(static_cast<size_t>(t.rows) * t.vocab);
    std::ifstream f(root + c.at("logits").get<std::string>(), std::ios::binary);
    f.read(reinterpret_cast<char*>(t.logits.data()), static_cast<std::streamsize>(t.logits.size() * sizeof(float)));
    SLM_ASSERT(f.good());
    cases.push_back(std::move(t));
  }
  return cases;
}

inline TinyCase TinyCaseNamed(const std::string& name) {
  for (TinyCase& t : TinyCases())
    if (t.name == name) return t;
  SLM_ASSERT(false);
  return {};
}

inline std::shared_ptr<const model::Model> LoadOrDie(const std::string& path) {
  auto m = model::LoadModel(path);
  if (!m.ok()) ADD_FAILURE() << m.error().message() << "; " << m.error().hint();
  SLM_ASSERT(m.ok());
  return m.Take();
}

inline Graph BuildOrDie(const TinyCase& t) {
  auto g = BuildDecoder(LoadOrDie(t.path), {t.max_context});
  if (!g.ok()) ADD_FAILURE() << g.error().message();
  SLM_ASSERT(g.ok());
  return g.Take();
}

// max|got - want| / max|want| over the last want.size() values of `got`.
template <class A, class B>
double RelativeError(const A& got, const B& want) {
  double error = 0, top = 0;
  const size_t skip = got.size() - want.size();
  for (size_t i = 0; i < want.size(); ++i) {
    const double e = std::abs(static_cast<double>(got[skip + i]) - static_cast<double>(want[i]));
    error = std::isnan(e) ? INFINITY : std::max(error, e);
    top = std::max(top, std::abs(static_cast<double>(want[i])));
  }
  return error / top;
}

}  // namespace slm::graph::testing
