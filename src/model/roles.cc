// See roles.h.
#include "model/roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <unordered_map>

#include "model/quoted.h"

namespace slm::model {
namespace {

enum class Where : uint8_t { kModel, kLayer };
enum class Need : uint8_t {
  kAlways,
  kIfThere,
  kUntied,
  kSplitQkv,
  kFusedQkv,
  kSplitQkvBias,
  kFusedQkvBias,
  kOBias,
  kQkNorm,
  kPostNorms,
  kNoPostNorms,
  kSplitGateUp,
  kFusedGateUp,
  kMlpBias,
};
enum class Dim : uint8_t { kNone, kV, kE, kF, kTwoF, kQWidth, kKvWidth, kQkvWidth, kHeadWidth, kHalfRotary };

struct Row {
  Role role;
  Where where;
  Need need;
  Dim rows, columns;
  std::string_view gguf, hf;
};

constexpr Row kRows[] = {
#define SLM_ROLE(role, where, need, rows, columns, gguf, hf) {Role::role, Where::where, Need::need, Dim::rows, Dim::columns, gguf, hf},
#include "model/roles.inc"
#undef SLM_ROLE
};

// Parts of a layer that hold no information of their own: tables which are computed from the config.
constexpr std::string_view kDerived[] = {"rotary_emb.inv_freq", "self_attn.rotary_emb.inv_freq", "attn_rot_embd.weight"};
// Model-level tensors that would change the result if they were ignored.
constexpr std::string_view kMeaningful[] = {
    "output_norm.bias", "output.bias", "token_embd_norm.weight", "token_embd_norm.bias", "position_embd.weight", "token_types.weight",
    "norm.bias",        "lm_head.bias"};

bool Needed(Need need, const ModelConfig& c) {
  switch (need) {
    case Need::kAlways:
    case Need::kIfThere: return true;
    case Need::kUntied: return !c.tied_head;
    case Need::kSplitQkv: return !c.fused_qkv;
    case Need::kFusedQkv: return c.fused_qkv;
    case Need::kSplitQkvBias: return c.qkv_bias && !c.fused_qkv;
    case Need::kFusedQkvBias: return c.qkv_bias && c.fused_qkv;
    case Need::kOBias: return c.o_bias;
    case Need::kQkNorm: return c.qk_norm;
    case Need::kPostNorms: return c.post_norms;
    case Need::kNoPostNorms: return !c.post_norms;
    case Need::kSplitGateUp: return !c.fused_gate_up;
    case Need::kFusedGateUp: return c.fused_gate_up;
    case Need::kMlpBias: return c.mlp_bias;
  }
  return false;
}

int64_t Extent(Dim d, const ModelConfig& c) {
  const int64_t q = int64_t{c.n_heads} * c.head_dim, kv = int64_t{c.n_kv_heads} * c.head_dim;
  switch (d) {
    case Dim::kNone: return 0;
    case Dim::kV: return c.vocab_size;
    case Dim::kE: return c.d_model;
    case Dim::kF: return c.d_ff;
    case Dim::kTwoF: return 2 * int64_t{c.d_ff};
    case Dim::kQWidth: return q;
    case Dim::kKvWidth: return kv;
    case Dim::kQkvWidth: return q + 2 * kv;
    case Dim::kHeadWidth: return c.head_dim;
    case Dim::kHalfRotary: return c.rope.rotary_dim / 2;
  }
  return 0;
}

std::string ShapeText(const std::vector<int64_t>& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

Status CheckTensor(const Row& row, const Tensor& t, const ModelConfig& c) {
  std::vector<int64_t> want = {Extent(row.rows, c)};
  if (row.columns != Dim::kNone) want.push_back(Extent(row.columns, c));
  if (t.dims != want)
    return Error(Code::kCorrupt,
                 fmt::format("tensor {} has shape {}, the config implies {}", Quoted(t.name), ShapeText(t.dims), ShapeText(want)),
                 "config and weights do not belong together");
  // Rows of an embedding are read one by one, from the tensor itself unless the head streams the same matrix.
  if (t.packed_bytes > 0 && row.role == Role::kEmbedding && !c.tied_head)
    return Error(Code::kCorrupt, fmt::format("tensor {} is only there packed, but no product reads it", Quoted(t.name)),
                 "export the package again");
  const bool integers = t.dtype >= DType::kI8 && t.dtype <= DType::kI64;
  if ((!t.foreign_type.empty() && !t.grouped) || integers)
    return Error(Code::kUnsupported, fmt::format("tensor {} is stored as {}", Quoted(t.name), TypeName(t)),
                 "supported: F32, F16, BF16, F64, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS, MXFP4; packed AWQ, GPTQ and "
                 "compressed-tensors matrices");
  return Ok();
}

// Tools for GPTQ write a bias of zeros beside every matrix: it changes nothing.
bool IsZeroBias(const Tensor& t) {
  if (!t.name.ends_with(".bias") || t.dims.size() != 1 || !t.foreign_type.empty()) return false;
  const std::vector<float> values = DequantizeAll(t);
  return std::all_of(values.begin(), values.end(), [](float v) { return v == 0; });
}

class Binder {
 public:
  Binder(Naming naming, const std::string& prefix, Model* m) : naming_(naming), prefix_(prefix), m_(*m), used_(m->tensors.size(), 0) {
    by_name_.reserve(m->tensors.size());
    for (size_t i = 0; i < m->tensors.size(); ++i) by_name_.emplace(m->tensors[i].name, static_cast<int32_t>(i));
  }

  Status Run() {
    const int n_layers = m_.config.n_layers;
    m_.role_index.assign((static_cast<size_t>(n_layers) + 1) * static_cast<size_t>(Role::kCount), -1);
    for (const Row& row : kRows) {
      if (!Needed(row.need, m_.config)) continue;
      const int first = row.where == Where::kModel ? -1 : 0, end = row.where == Where::kModel ? 0 : n_layers;
      for (int layer = first; layer < end; ++layer) SLM_RETURN_IF_ERROR(Bind(row, layer));
    }
    return RefuseUnused();
  }

 private:
  std::string LayerPrefix() const { return naming_ == Naming::kGguf ? "blk." : prefix_ + "layers."; }

  std::string FullName(const Row& row, int layer) const {
    const std::string_view base = naming_ == Naming::kGguf ? row.gguf : row.hf;
    if (row.where == Where::kLayer) return fmt::format("{}{}.{}", LayerPrefix(), layer, base);
    if (naming_ == Naming::kGguf) return std::string(base);
    if (row.role == Role::kHead) return HeadName();
    return prefix_ + std::string(base);
  }
  // The head lies beside the decoder, not inside it: "language_model.model." has "language_model.lm_head.weight".
  std::string HeadName() const {
    const std::string nested = "language_model.lm_head.weight";
    return by_name_.count(nested) ? nested : "lm_head.weight";
  }

  Status Bind(const Row& row, int layer) {
    if ((naming_ == Naming::kGguf ? row.gguf : row.hf).empty()) return Ok();
    const std::string name = FullName(row, layer);
    const auto it = by_name_.find(name);
    if (it == by_name_.end()) {
      if (row.need == Need::kIfThere) return Ok();
      return Error(Code::kCorrupt, "tensor " + Quoted(name) + " is missing",
                   "the file or folder is incomplete, or its config is not its own");
    }
    SLM_RETURN_IF_ERROR(CheckTensor(row, m_.tensors[static_cast<size_t>(it->second)], m_.config));
    used_[static_cast<size_t>(it->second)] = 1;
    const size_t slot = static_cast<size_t>(layer + 1) * static_cast<size_t>(Role::kCount) + static_cast<size_t>(row.role);
    m_.role_index[slot] = it->second;
    return Ok();
  }

  // A tensor of a layer that no row wanted is a part of the model that would be left out of the computation.
  Status RefuseUnused() const {
    const std::string layers = LayerPrefix();
    for (size_t i = 0; i < used_.size(); ++i) {
      if (used_[i]) continue;
      const std::string_view name = m_.tensors[i].name;
      bool refuse = name.substr(0, layers.size()) == layers;
      const size_t dot = name.find('.', layers.size());
      for (const std::string_view d : kDerived)
        if (refuse && dot != name.npos && name.substr(dot + 1) == d) refuse = false;
      for (const std::string_view s : kMeaningful)
        if (name == s || name == prefix_ + std::string(s)) refuse = true;
      if (refuse && IsZeroBias(m_.tensors[i])) refuse = false;
      if (refuse)
        return Error(Code::kUnsupported,
                     fmt::format("tensor {} has no place in architecture {}", Quoted(name), Quoted(m_.config.architecture)),
                     "leaving it out would change the model's answers");
    }
    return Ok();
  }

  const Naming naming_;
  const std::string prefix_;
  Model& m_;
  std::vector<uint8_t> used_;
  std::unordered_map<std::string_view, int32_t> by_name_;
};

}  // namespace

std::string GgufName(Role role, int layer, const ModelConfig& c) {
  for (const Row& row : kRows) {
    if (row.role != role || !Needed(row.need, c)) continue;
    return row.where == Where::kModel ? std::string(row.gguf) : fmt::format("blk.{}.{}", layer, row.gguf);
  }
  return {};
}

Status BindRoles(Naming naming, const std::string& prefix, Model* m) { return Binder(naming, prefix, m).Run(); }

bool IsLayerMatrix(Role role) {
  switch (role) {
    case Role::kQ:
    case Role::kK:
    case Role::kV:
    case Role::kQkv:
    case Role::kO:
    case Role::kGate:
    case Role::kUp:
    case Role::kGateUp:
    case Role::kDown: return true;
    default: return false;
  }
}

}  // namespace slm::model
