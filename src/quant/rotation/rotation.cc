// See rotation.h. With h the residual stream and R1 orthogonal, h becomes R1 h: what reads it (q, k, v, gate, up, head) is multiplied by
// R1^T on its columns, what writes it (embedding, o, down and their biases) by R1 on its rows.
#include "quant/rotation/rotation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "quant/matrix.h"
#include "quant/rotation/hadamard.h"

namespace slm::quant {
namespace {
using model::Model;
using model::Role;
using model::Tensor;

constexpr int64_t kPartRows = 512;
constexpr const char* kHeadName = "output.weight";

Matrix Square(const std::vector<float>& values, int64_t n) {
  Matrix m(n, n);
  for (int64_t i = 0; i < n; ++i) std::copy(values.begin() + i * n, values.begin() + (i + 1) * n, m.Row(i));
  return m;
}

// What becomes of a tensor.
struct Turn {
  const Tensor* tensor = nullptr;
  const Tensor* norm = nullptr;  // whose weights its columns take
  Role role = Role::kCount;
  std::string name;
};

class Rotation {
 public:
  Rotation(const Model& m, const Machine& machine, const std::vector<float>& stream, const std::vector<float>& head)
      : m_(m),
        machine_(machine),
        stream_(Square(stream, m.config.d_model)),
        head_(Square(head, m.config.head_dim)),
        times_stream_(machine, stream_) {}

  Status Write(const model::gguf::ByteSink& sink) {
    Gather();
    model::gguf::FileWriter out;
    SLM_RETURN_IF_ERROR(model::gguf::CopyKeys(m_, {"general.file_type", "general.quantization_version"}, &out));
    out.U32("general.file_type", 0);
    for (const Turn& t : turns_) out.Tensor(t.name, DTypeOf(t), t.tensor->dims);
    SLM_RETURN_IF_ERROR(out.Begin(sink));
    for (const Turn& t : turns_) {
      SLM_RETURN_IF_ERROR(WriteOne(t, out));
      m_.DropPages(*t.tensor);
    }
    return out.Finish();
  }

 private:
  static DType DTypeOf(const Turn& t) { return t.role == Role::kCount ? t.tensor->dtype : DType::kF32; }

  void Gather() {
    constexpr size_t kRoles = static_cast<size_t>(Role::kCount);
    std::vector<Turn> by_tensor(m_.tensors.size());
    for (size_t slot = 0; slot < m_.role_index.size(); ++slot) {
      if (m_.role_index[slot] < 0) continue;
      const int layer = static_cast<int>(slot / kRoles) - 1;
      Turn& t = by_tensor[static_cast<size_t>(m_.role_index[slot])];
      if (t.role == Role::kEmbedding) continue;  // a tied head
      t.role = static_cast<Role>(slot % kRoles);
      t.norm = NormBefore(t.role, layer);
    }
    for (size_t i = 0; i < by_tensor.size(); ++i) {
      Turn& t = by_tensor[i];
      t.tensor = &m_.tensors[i];
      t.name = t.tensor->name;
      if (t.tensor->foreign_type.empty()) turns_.push_back(t);
    }
    if (m_.config.tied_head) turns_.push_back({m_.Find(Role::kEmbedding), m_.Find(Role::kFinalNorm), Role::kHead, kHeadName});
  }

  const Tensor* NormBefore(Role role, int layer) const {
    switch (role) {
      case Role::kQ:
      case Role::kK:
      case Role::kV:
      case Role::kQkv: return m_.Find(Role::kAttnNorm, layer);
      case Role::kGate:
      case Role::kUp:
      case Role::kGateUp: return m_.Find(Role::kFfnNorm, layer);
      case Role::kHead: return m_.Find(Role::kFinalNorm);
      default: return nullptr;
    }
  }

  Status WriteOne(const Turn& t, model::gguf::FileWriter& out) {
    switch (t.role) {
      case Role::kCount: return out.Data(t.tensor->data);
      case Role::kAttnNorm:
      case Role::kFfnNorm:
      case Role::kFinalNorm: {
        const std::vector<float> ones(static_cast<size_t>(t.tensor->n_values()), 1 - m_.config.norm_offset);
        return out.Data(std::as_bytes(std::span(ones)));
      }
      case Role::kEmbedding:
      case Role::kQ:
      case Role::kK:
      case Role::kV:
      case Role::kQkv:
      case Role::kGate:
      case Role::kUp:
      case Role::kGateUp:
      case Role::kHead: return Reader(t, out);
      case Role::kO:
      case Role::kDown: return Writer(t, out);
      default: return Vector(t, out);
    }
  }

  // Rows times R1^T; value rows are then turned in their heads. Heads are whole in a part.
  Status Reader(const Turn& t, model::gguf::FileWriter& out) {
    const int64_t rows = t.tensor->dims[0], width = t.tensor->dims[1], d = m_.config.head_dim;
    const std::vector<float> gain = t.norm ? model::DequantizeAll(*t.norm) : std::vector<float>();
    const int64_t step = t.role == Role::kV || t.role == Role::kQkv ? (kPartRows + d - 1) / d * d : kPartRows;
    Matrix part(std::min(step, rows), width), turned(std::min(step, rows), width);
    for (int64_t at = 0; at < rows; at += step) {
      const int64_t n = std::min(step, rows - at);
      part.Shorten(n);
      turned.Shorten(n);
      for (int64_t i = 0; i < n; ++i) {
        SLM_RETURN_IF_ERROR(Read(*t.tensor, at + i, part.Row(i)));
        for (int64_t j = 0; j < width && t.norm; ++j) part.Row(i)[j] *= m_.config.norm_offset + gain[static_cast<size_t>(j)];
      }
      times_stream_.Multiply(part, turned);
      for (int64_t head = 0; head < n; head += d)
        if (IsValue(t.role, at + head)) TurnRows(turned, head);
      SLM_RETURN_IF_ERROR(Put(turned, out));
    }
    return Ok();
  }

  bool IsValue(Role role, int64_t row) const {
    const model::ModelConfig& c = m_.config;
    return role == Role::kV || (role == Role::kQkv && row >= int64_t{c.head_dim} * (c.n_heads + c.n_kv_heads));
  }
  // The D rows from `first` on become R2 times themselves.
  void TurnRows(Matrix& m, int64_t first) const {
    const int64_t d = head_.rows(), width = m.columns();
    std::vector<float> sum(static_cast<size_t>(d));
    for (int64_t j = 0; j < width; ++j) {
      for (int64_t i = 0; i < d; ++i) {
        float s = 0;
        for (int64_t k = 0; k < d; ++k) s += head_.Row(i)[k] * m.Row(first + k)[j];
        sum[static_cast<size_t>(i)] = s;
      }
      for (int64_t i = 0; i < d; ++i) m.Row(first + i)[j] = sum[static_cast<size_t>(i)];
    }
  }

  // R1 W, for o of W whose columns are turned in their heads: R1 (W R2^T).
  Status Writer(const Turn& t, model::gguf::FileWriter& out) {
    const int64_t rows = t.tensor->dims[0], width = t.tensor->dims[1], d = head_.rows();
    Matrix columns(width, rows);  // W^T
    std::vector<float> row(static_cast<size_t>(width)), head(static_cast<size_t>(d));
    for (int64_t i = 0; i < rows; ++i) {
      SLM_RETURN_IF_ERROR(Read(*t.tensor, i, row.data()));
      for (int64_t at = 0; at < width && t.role == Role::kO; at += d) {
        for (int64_t a = 0; a < d; ++a) {
          float s = 0;
          for (int64_t k = 0; k < d; ++k) s += row[static_cast<size_t>(at + k)] * head_.Row(a)[k];
          head[static_cast<size_t>(a)] = s;
        }
        std::copy(head.begin(), head.end(), row.begin() + at);
      }
      for (int64_t j = 0; j < width; ++j) columns.Row(j)[i] = row[static_cast<size_t>(j)];
    }
    Matrix turned(rows, width);
    Multiplier(machine_, columns).Multiply(stream_, turned);
    return Put(turned, out);
  }

  // Biases: of o and down they are part of the stream, of v of its heads.
  Status Vector(const Turn& t, model::gguf::FileWriter& out) {
    std::vector<float> v = model::DequantizeAll(*t.tensor);
    const auto turn = [&](const Matrix& by, size_t first) {
      std::vector<float> to(static_cast<size_t>(by.rows()));
      for (int64_t i = 0; i < by.rows(); ++i)
        for (int64_t k = 0; k < by.columns(); ++k) to[static_cast<size_t>(i)] += by.Row(i)[k] * v[first + static_cast<size_t>(k)];
      std::copy(to.begin(), to.end(), v.begin() + static_cast<int64_t>(first));
    };
    if (t.role == Role::kOBias || t.role == Role::kDownBias) turn(stream_, 0);
    if (t.role == Role::kVBias || t.role == Role::kQkvBias)
      for (size_t at = 0; at < v.size(); at += static_cast<size_t>(head_.rows()))
        if (IsValue(t.role == Role::kVBias ? Role::kV : Role::kQkv, static_cast<int64_t>(at))) turn(head_, at);
    return out.Data(std::as_bytes(std::span(v)));
  }

  Status Read(const Tensor& t, int64_t row, float* to) const {
    model::ReadRows(t, row, row + 1, to);
    for (int64_t j = 0; j < t.dims[1]; ++j)
      if (!std::isfinite(to[j]))
        return Error(Code::kCorrupt, fmt::format("{}: {}: row {} holds NaN or infinity", m_.path, t.name, row),
                     "the weights are damaged: fetch or convert the model again");
    return Ok();
  }
  static Status Put(const Matrix& m, model::gguf::FileWriter& out) {
    for (int64_t i = 0; i < m.rows(); ++i) SLM_RETURN_IF_ERROR(out.Data(std::as_bytes(m.Values(i))));
    return Ok();
  }

  const Model& m_;
  const Machine machine_;
  const Matrix stream_, head_;     // R1 [E, E], R2 [D, D]
  const Multiplier times_stream_;  // rows x become x R1^T
  std::vector<Turn> turns_;
};

}  // namespace

Status WriteRotated(const Model& m, uint64_t seed, Isa isa, ThreadTeam& team, const model::gguf::ByteSink& sink) {
  const model::ModelConfig& c = m.config;
  if (m.format != "gguf") return Error(Code::kUnsupported, m.path + ": a " + m.format + " cannot be rotated", "name a GGUF file or folder");
  if (c.post_norms || m.Find(Role::kAttnPostNorm, 0) || m.Find(Role::kFfnPostNorm, 0))
    return Error(Code::kUnsupported,
                 m.path + ": " + c.architecture + " has norms between attention or MLP and the residual stream, which no rotation passes",
                 "leave --rotate out");
  auto stream = RandomHadamard(c.d_model, seed);
  auto head = RandomHadamard(c.head_dim, seed + 1);
  for (const auto* r : {&stream, &head})
    if (!r->ok()) return r->error().At(m.path);
  return Rotation(m, {&team, isa}, stream.value(), head.value()).Write(sink);
}

}  // namespace slm::quant
