// The tensors of every packed matrix joined to one (declared in quantization.h). Shapes are checked against each other and against the
// config before anything is read, so that no index of grouped.cc can leave its tensor.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "model/byte_cursor.h"
#include "model/grouped/grouped.h"
#include "model/hf/packed/quantization.h"
#include "model/quoted.h"

namespace slm::model::hf {
namespace {

constexpr int64_t kMostRows = INT32_MAX;  // of either side of a matrix

std::string ShapeText(const Tensor& t) { return fmt::format("{} [{}]", TypeName(t), fmt::join(t.dims, ", ")); }
Error Corrupt(const Tensor& t, const std::string& want) {
  return Error(Code::kCorrupt, fmt::format("tensor {}: {}, {}", Quoted(t.name), ShapeText(t), want),
               "the weights and quantization_config do not belong together: fetch the model again");
}

// The storage types' names by method and bits; they live as long as the program.
std::string_view NameOf(const GroupedMatrix& g) {
  switch (g.layout) {
    case GroupedLayout::kAwq: return "AWQ_INT4";
    case GroupedLayout::kGptq: return g.bits == 2 ? "GPTQ_INT2" : g.bits == 3 ? "GPTQ_INT3" : g.bits == 4 ? "GPTQ_INT4" : "GPTQ_INT8";
    case GroupedLayout::kCompressed: return g.bits == 2 ? "CT_INT2" : g.bits == 4 ? "CT_INT4" : "CT_INT8";
    case GroupedLayout::kFp4: return g.scale_form == ScaleForm::kE8M0 ? "CT_MXFP4" : "CT_NVFP4";
    case GroupedLayout::kTernary: return "BITNET_INT2";
    case GroupedLayout::kBytes:
    case GroupedLayout::kColumns:
    case GroupedLayout::kStrided: break;  // the last two are in no folder
  }
  return "CT_BYTES";
}

class Joiner {
 public:
  Joiner(const Quantization& q, Model* m) : q_(q), m_(*m), part_(m->tensors.size(), 0) {
    for (size_t i = 0; i < m->tensors.size(); ++i) by_name_.emplace(m->tensors[i].name, i);
  }

  Status Run() {
    std::vector<std::pair<size_t, Tensor>> joined;  // by the place of their codes
    for (size_t i = 0; i < m_.tensors.size(); ++i) {
      SLM_ASSIGN_OR_RETURN(const auto stem, StemOf(m_.tensors[i]));
      if (stem.empty()) continue;
      stem_ = stem;
      GroupedMatrix g;
      SLM_RETURN_IF_ERROR(Fill(m_.tensors[i], &g));
      part_[i] = 1;
      g.facts = FactsOf(g);
      Tensor t;
      t.name = stem_ + ".weight";
      t.dtype = DType::kCount;
      t.foreign_type = NameOf(g);
      t.dims = {g.n, g.k};
      t.grouped = std::make_shared<const GroupedMatrix>(g);
      joined.emplace_back(i, std::move(t));
    }
    return Replace(std::move(joined));
  }

 private:
  // What stands before the name of a matrix's codes; empty: the tensor is no codes.
  Result<std::string> StemOf(const Tensor& t) const {
    const std::string_view name = t.name;
    const auto before = [&](std::string_view tail) { return std::string(name.substr(0, name.size() - tail.size())); };
    if (q_.method == QuantMethod::kBitNet) return name.ends_with(".weight") && t.foreign_type == "U8" ? before(".weight") : std::string();
    if (q_.method != QuantMethod::kCompressed) return name.ends_with(".qweight") ? before(".qweight") : std::string();
    if (name.ends_with(".weight_packed")) return before(".weight_packed");
    return name.ends_with(".weight") && t.dtype == DType::kI8 ? before(".weight") : std::string();
  }

  Status Fill(const Tensor& codes, GroupedMatrix* g) {
    switch (q_.method) {
      case QuantMethod::kBitNet: return Ternary(codes, g);
      case QuantMethod::kCompressed: return codes.foreign_type == "U8" ? Fp4(codes, g) : Compressed(codes, g);
      default: return Transposed(codes, g);
    }
  }

  // A part of the matrix, or nullptr; it is taken out of the list.
  const Tensor* Part(const char* tail) {
    const auto it = by_name_.find(stem_ + tail);
    if (it == by_name_.end()) return nullptr;
    part_[it->second] = 1;
    return &m_.tensors[it->second];
  }
  Result<const Tensor*> Needed(const char* tail) {
    const Tensor* t = Part(tail);
    if (t) return t;
    return Error(Code::kCorrupt, "tensor " + Quoted(stem_ + tail) + " is missing", "the file or folder is incomplete: fetch it again");
  }
  static Status MustBe(const Tensor& t, DType dtype, const std::vector<int64_t>& dims) {
    if (t.dtype == dtype && t.dims == dims) return Ok();
    return Corrupt(t, fmt::format("{} [{}] is needed", Info(dtype).name, fmt::join(dims, ", ")));
  }

  Status Scales(const Tensor& t, GroupedMatrix* g) const {
    if (t.dtype != DType::kF16 && t.dtype != DType::kBF16 && t.dtype != DType::kF32) return Corrupt(t, "F16, BF16 or F32 is needed");
    g->scale_type = t.dtype;
    g->scales = t.data;
    return Ok();
  }

  // AWQ and GPTQ: everything has the columns of the matrix outermost.
  Status Transposed(const Tensor& codes, GroupedMatrix* g) {
    const bool awq = q_.method == QuantMethod::kAwq;
    g->layout = awq ? GroupedLayout::kAwq : GroupedLayout::kGptq;
    g->zero_offset = q_.zero_offset;
    SLM_ASSIGN_OR_RETURN(const Tensor* scales, Needed(".scales"));
    SLM_ASSIGN_OR_RETURN(const Tensor* zeros, Needed(".qzeros"));
    for (const Tensor* t : {&codes, scales, zeros})
      if (t->dims.size() != 2 || t->dims[0] < 1 || t->dims[1] < 1 || t->dims[0] > kMostRows || t->dims[1] > kMostRows)
        return Corrupt(*t, "two dimensions are needed");
    g->n = scales->dims[1];
    g->n_groups = scales->dims[0];
    g->bits = static_cast<int>(std::min<int64_t>(zeros->dims[1] * 32 / g->n, 32));
    const bool known = g->bits == 4 || (!awq && (g->bits == 2 || g->bits == 3 || g->bits == 8));
    if (!known || g->n * g->bits % 32 != 0 || (!q_.any_scheme && g->bits != q_.schemes[0].bits))
      return Corrupt(*zeros, fmt::format("{} rows of {} bits are needed", g->n, q_.schemes[0].bits));
    g->k = awq ? codes.dims[0] : codes.dims[0] * 32 / g->bits;
    SLM_RETURN_IF_ERROR(MustBe(*zeros, DType::kI32, {g->n_groups, g->n * g->bits / 32}));
    if (g->k > kMostRows || (!awq && g->k * g->bits != codes.dims[0] * 32)) return Corrupt(codes, "the rows hold no whole codes");
    SLM_RETURN_IF_ERROR(awq ? MustBe(codes, DType::kI32, {g->k, g->n / 8}) : MustBe(codes, DType::kI32, {codes.dims[0], g->n}));
    SLM_RETURN_IF_ERROR(Scales(*scales, g));
    SLM_RETURN_IF_ERROR(Groups(*scales, q_.any_scheme ? 0 : q_.schemes[0].group, Part(".g_idx"), g));
    g->codes = codes.data;
    g->zeros = zeros->data;
    return Ok();
  }

  // The group size that `wanted` (0: one group) and the number of groups agree on, and the list of groups if there is one.
  Status Groups(const Tensor& scales, int64_t wanted, const Tensor* list, GroupedMatrix* g) const {
    if (wanted == 0 && q_.any_scheme) {  // only the shape tells
      if (g->k % g->n_groups != 0) return Corrupt(scales, fmt::format("{} columns do not divide into these groups", g->k));
      wanted = g->k / g->n_groups;
    }
    g->group = wanted == 0 || wanted > g->k ? g->k : wanted;
    if ((g->k + g->group - 1) / g->group != g->n_groups)
      return Corrupt(scales, fmt::format("{} columns in groups of {} are {} groups", g->k, g->group, (g->k + g->group - 1) / g->group));
    if (!list) return Ok();
    SLM_RETURN_IF_ERROR(MustBe(*list, DType::kI32, {g->k}));
    bool in_order = true;
    for (int64_t i = 0; i < g->k; ++i) {
      const int32_t of = LoadAs<int32_t>(list->data.data() + static_cast<size_t>(i) * 4);
      if (of < 0 || of >= g->n_groups) return Corrupt(*list, fmt::format("column {} is of group {}, there are {}", i, of, g->n_groups));
      in_order = in_order && of == i / g->group;
    }
    if (!in_order) g->group_of = list->data;
    return Ok();
  }

  Status Compressed(const Tensor& codes, GroupedMatrix* g) {
    const bool bytes = codes.dtype == DType::kI8;
    g->layout = bytes ? GroupedLayout::kBytes : GroupedLayout::kCompressed;
    SLM_ASSIGN_OR_RETURN(const Tensor* scales, Needed(".weight_scale"));
    if (codes.dims.size() != 2) return Corrupt(codes, "two dimensions are needed");
    g->n = codes.dims[0];
    g->k = codes.dims[1];
    if (!bytes) SLM_RETURN_IF_ERROR(UnpackedShape(g));
    if (g->n < 1 || g->k < 1 || g->n > kMostRows || g->k > kMostRows) return Corrupt(codes, "two dimensions are needed");
    g->one_scale = scales->n_values() == 1 && scales->dims.size() < 2;
    if (!g->one_scale && (scales->dims.size() != 2 || scales->dims[0] != g->n || scales->dims[1] < 1 || scales->dims[1] > g->k))
      return Corrupt(*scales, fmt::format("a scale for each of {} rows is needed", g->n));
    g->n_groups = g->one_scale ? 1 : scales->dims[1];
    SLM_ASSIGN_OR_RETURN(const QuantScheme scheme, SchemeOf(codes, *scales, *g));
    g->bits = scheme.bits;
    SLM_RETURN_IF_ERROR(Scales(*scales, g));
    SLM_RETURN_IF_ERROR(Groups(*scales, scheme.group, Part(".weight_g_idx"), g));
    SLM_RETURN_IF_ERROR(CompressedZeros(g));
    g->codes = codes.data;
    TakeInputs();
    return bytes && g->bits < 8 ? CheckBytes(codes, g->bits) : Ok();
  }
  // What belongs to rounded activations: the kernels round theirs in their own way.
  void TakeInputs() {
    for (const char* extra : {".input_scale", ".input_zero_point", ".input_global_scale"}) Part(extra);
  }
  // A byte for each code of fewer bits.
  static Status CheckBytes(const Tensor& codes, int bits) {
    const int most = 1 << (bits - 1);
    for (const std::byte b : codes.data)
      if (const auto code = static_cast<int8_t>(b); code < -most || code >= most)
        return Corrupt(codes, fmt::format("a code of {} where {} bits are needed", static_cast<int>(code), bits));
    return Ok();
  }

  // Two codes a byte, a byte a scale.
  Status Fp4(const Tensor& codes, GroupedMatrix* g) {
    g->layout = GroupedLayout::kFp4;
    g->bits = 8;
    SLM_ASSIGN_OR_RETURN(const Tensor* scales, Needed(".weight_scale"));
    for (const Tensor* t : {&codes, scales})
      if (t->dims.size() != 2 || t->dims[0] < 1 || t->dims[1] < 1 || t->dims[0] > kMostRows || t->dims[1] > kMostRows / 2)
        return Corrupt(*t, "two dimensions are needed");
    g->n = codes.dims[0];
    g->k = codes.dims[1] * 2;
    g->n_groups = scales->dims[1];
    const bool nv = scales->foreign_type == "F8_E4M3";
    if (!nv && scales->foreign_type != "U8" && scales->foreign_type != "F8_E8M0") return Corrupt(*scales, "F8_E4M3 or U8 is needed");
    g->scale_form = nv ? ScaleForm::kE4M3 : ScaleForm::kE8M0;
    g->group = nv ? 16 : 32;
    const bool known = std::any_of(q_.schemes.begin(), q_.schemes.end(),
                                   [&](const QuantScheme& s) { return s.codes == (nv ? CodeType::kNvFp4 : CodeType::kMxFp4); });
    if (!known || scales->dims[0] != g->n || g->n_groups * g->group != g->k)
      return Corrupt(codes, fmt::format("with scales {}, is none of the schemes of config_groups", ShapeText(*scales)));
    const auto is_nan = [nv](std::byte b) { return nv ? (b & std::byte{0x7f}) == std::byte{0x7f} : b == std::byte{255}; };  // E4M3, E8M0
    if (std::any_of(scales->data.begin(), scales->data.end(), is_nan)) return Corrupt(*scales, "numbers are needed: one is NaN");
    g->codes = codes.data;
    g->scales = scales->data;
    TakeInputs();
    if (!nv) return Ok();
    SLM_ASSIGN_OR_RETURN(const Tensor* global, Needed(".weight_global_scale"));
    if (global->dtype != DType::kF32 || global->n_values() != 1) return Corrupt(*global, "F32 [1] is needed");
    g->global_scale = LoadAs<float>(global->data.data());
    return std::isfinite(g->global_scale) && g->global_scale > 0 ? Ok() : Corrupt(*global, "a number above 0 is needed");
  }

  // Four codes a byte, one scale.
  Status Ternary(const Tensor& codes, GroupedMatrix* g) {
    g->layout = GroupedLayout::kTernary;
    g->bits = 2;
    SLM_ASSIGN_OR_RETURN(const Tensor* scales, Needed(".weight_scale"));
    if (codes.dims.size() != 2 || codes.dims[0] < 1 || codes.dims[1] < 1 || codes.dims[0] > kMostRows / 4 || codes.dims[1] > kMostRows)
      return Corrupt(codes, "two dimensions are needed");
    if (scales->n_values() != 1) return Corrupt(*scales, "one scale is needed");
    g->n = codes.dims[0] * 4;
    g->k = g->group = codes.dims[1];
    g->n_groups = 1;
    g->one_scale = true;
    g->scale_form = q_.scale_divides ? ScaleForm::kInverse : ScaleForm::kFloat;
    g->codes = codes.data;
    return Scales(*scales, g);
  }

  Status UnpackedShape(GroupedMatrix* g) {
    SLM_ASSIGN_OR_RETURN(const Tensor* shape, Needed(".weight_shape"));
    if ((shape->dtype != DType::kI64 && shape->dtype != DType::kI32) || shape->n_values() != 2) return Corrupt(*shape, "I64 [2] is needed");
    const auto at = [&](size_t i) {
      return shape->dtype == DType::kI64 ? LoadAs<int64_t>(shape->data.data() + 8 * i) : LoadAs<int32_t>(shape->data.data() + 4 * i);
    };
    if (at(0) != g->n) return Corrupt(*shape, fmt::format("it says {} rows, the codes have {}", at(0), g->n));
    g->k = at(1);
    return Ok();
  }

  // The scheme of the config that these shapes follow.
  Result<QuantScheme> SchemeOf(const Tensor& codes, const Tensor& scales, const GroupedMatrix& g) const {
    for (const QuantScheme& s : q_.schemes) {
      if (s.codes != CodeType::kInt) continue;
      const int64_t per_word = 32 / s.bits;
      if (codes.dtype != DType::kI8 && (codes.dtype != DType::kI32 || codes.dims[1] != (g.k + per_word - 1) / per_word)) continue;
      const int64_t groups = s.group == 0 ? 1 : (g.k + s.group - 1) / s.group;
      if (groups == g.n_groups) return s;
    }
    return Corrupt(codes, fmt::format("with scales {}, is none of the schemes of config_groups", ShapeText(scales)));
  }

  Status CompressedZeros(GroupedMatrix* g) {
    const Tensor* zeros = Part(".weight_zero_point");
    if (!zeros) return Ok();
    g->byte_zeros = zeros->dtype == DType::kI8;
    const int64_t per_word = 32 / g->bits;
    if (g->byte_zeros && g->one_scale) {
      if (zeros->n_values() != 1) return Corrupt(*zeros, "one zero point is needed");
    } else if (g->byte_zeros) {
      SLM_RETURN_IF_ERROR(MustBe(*zeros, DType::kI8, {g->n, g->n_groups}));
    } else {
      SLM_RETURN_IF_ERROR(MustBe(*zeros, DType::kI32, {(g->n + per_word - 1) / per_word, g->n_groups}));
    }
    g->zeros = zeros->data;
    return Ok();
  }

  // Joined tensors go where their codes were, in file order.
  Status Replace(std::vector<std::pair<size_t, Tensor>> joined) {
    std::vector<Tensor> out;
    auto next = joined.begin();
    for (size_t i = 0; i < m_.tensors.size(); ++i) {
      if (next != joined.end() && next->first == i) {
        const auto twice = by_name_.find(next->second.name);
        if (twice != by_name_.end() && twice->second != i)
          return Error(Code::kCorrupt, "tensor " + Quoted(next->second.name) + " is there packed and whole", "fetch the model again");
        out.push_back(std::move((next++)->second));
      } else if (!part_[i]) {
        out.push_back(std::move(m_.tensors[i]));
      }
    }
    m_.tensors = std::move(out);
    return Ok();
  }

  const Quantization& q_;
  Model& m_;
  std::vector<uint8_t> part_;  // tensors that are parts of a matrix
  std::unordered_map<std::string, size_t> by_name_;
  std::string stem_;  // of the matrix in work
};

}  // namespace

Status JoinGrouped(const Quantization& q, Model* m) {
  if (q.method == QuantMethod::kNone || q.method == QuantMethod::kOther) return Ok();
  return Joiner(q, m).Run();
}

}  // namespace slm::model::hf
