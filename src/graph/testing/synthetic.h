// Models made of numbers in memory: for structure and plans, where no file is needed. Test-only.
#pragma once
#include <memory>
#include <string>

#include "graph/graph.h"
#include "model/model.h"

namespace slm::graph::testing {

// A Llama-like model of the config's sizes. Tensors have shapes and types but no bytes: enough for the builder and for passes
// that do not fold.
inline std::shared_ptr<model::Model> ModelOfShapes(const model::ModelConfig& c, DType dtype = DType::kF16) {
  using model::Role;
  auto m = std::make_shared<model::Model>();
  m->path = "synthetic";
  m->config = c;
  m->role_index.assign((static_cast<size_t>(c.n_layers) + 1) * static_cast<size_t>(Role::kCount), -1);
  auto add = [&](Role role, int layer, std::vector<int64_t> dims) {
    m->role_index[static_cast<size_t>(layer + 1) * static_cast<size_t>(Role::kCount) + static_cast<size_t>(role)] =
        static_cast<int32_t>(m->tensors.size());
    model::Tensor t;
    t.name = "t" + std::to_string(m->tensors.size());
    t.dtype = dims.size() == 1 ? DType::kF32 : dtype;
    t.dims = std::move(dims);
    m->tensors.push_back(std::move(t));
  };
  const int64_t e = c.d_model, q = int64_t{c.n_heads} * c.head_dim, kv = int64_t{c.n_kv_heads} * c.head_dim, f = c.d_ff;
  add(Role::kEmbedding, -1, {c.vocab_size, e});
  add(Role::kFinalNorm, -1, {e});
  if (!c.tied_head) add(Role::kHead, -1, {c.vocab_size, e});
  for (int l = 0; l < c.n_layers; ++l) {
    add(Role::kAttnNorm, l, {e});
    add(Role::kQ, l, {q, e});
    add(Role::kK, l, {kv, e});
    add(Role::kV, l, {kv, e});
    add(Role::kO, l, {e, q});
    add(Role::kFfnNorm, l, {e});
    add(Role::kGate, l, {f, e});
    add(Role::kUp, l, {f, e});
    add(Role::kDown, l, {e, f});
  }
  return m;
}

// The sizes of SmolLM2-135M (config.json of the model).
inline model::ModelConfig SmolLm2Config() {
  model::ModelConfig c;
  c.vocab_size = 49152;
  c.d_model = 576;
  c.n_layers = 30;
  c.n_heads = 9;
  c.n_kv_heads = 3;
  c.head_dim = 64;
  c.d_ff = 1536;
  c.max_context = 8192;
  c.rope.theta = 100000;
  c.rope.rotary_dim = 64;
  c.tied_head = true;
  return c;
}

inline model::ModelConfig SmallConfig() {
  model::ModelConfig c = SmolLm2Config();
  c.vocab_size = 96;
  c.d_model = 32;
  c.n_layers = 2;
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.head_dim = c.rope.rotary_dim = 8;
  c.d_ff = 48;
  return c;
}

inline int CountOf(const Graph& g, Op op) {
  int n = 0;
  for (const Node& node : g.nodes) n += node.op == op;
  return n;
}

}  // namespace slm::graph::testing
