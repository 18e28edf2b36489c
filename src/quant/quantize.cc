// The stream from the mapped tensors to the file: rows are decoded, encoded and judged by all threads, written in order.
// See quant.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/threads.h"
#include "quant/allocation/sensitivity.h"
#include "quant/calibrate.h"
#include "quant/calibrated_tensors.h"
#include "quant/ggml_blocks.h"
#include "quant/quant.h"
#include "quant/row_sums.h"

namespace slm::quant {
namespace {
using model::Model;
using model::Tensor;

constexpr uint64_t kPartBytes = uint64_t{2} << 20;  // of f32 rows that are in work at a time
constexpr uint64_t kFixedBytes = uint64_t{4} << 20;

int64_t WidthOf(const Tensor& t) { return t.dims.empty() ? 1 : t.dims.back(); }
int64_t RowsOf(const Tensor& t) { return WidthOf(t) == 0 ? 0 : t.n_values() / WidthOf(t); }
int64_t PartRows(int64_t width, int n_threads) {
  return std::max<int64_t>(n_threads,
                           static_cast<int64_t>(kPartBytes / (sizeof(float) * static_cast<uint64_t>(std::max<int64_t>(width, 1)))));
}
// Copied byte for byte. F32 and F16 go the way of the others, which looks for NaN.
bool IsKept(const Choice& c) { return c.dtype == c.tensor->dtype && c.dtype != DType::kF32 && c.dtype != DType::kF16; }

// general.file_type of llama.cpp (llama_ftype) for a file that is mostly of this type.
uint32_t FileTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF16: return 1;
    case DType::kQ4_0: return 2;
    case DType::kQ4_1: return 3;
    case DType::kQ8_0: return 7;
    case DType::kQ5_0: return 8;
    case DType::kQ5_1: return 9;
    case DType::kQ4_K: return 14;
    case DType::kQ6_K: return 18;
    default: return 0;
  }
}
DType MostBodyWeights(const Plan& plan) {
  std::map<DType, int64_t> weights;
  for (const Choice& c : plan.choices)
    if (c.is_body) weights[c.dtype] += c.tensor->n_values();
  DType most = DType::kF32;
  for (const auto& [dtype, n] : weights)
    if (most == DType::kF32 || n > weights[most]) most = dtype;
  return most;
}

class TensorStream {
 public:
  TensorStream(const Model& m, ThreadTeam& team, model::gguf::FileWriter& out)
      : m_(m), team_(team), out_(out), scratch_(static_cast<size_t>(team.size())) {}

  // Writes one tensor; returns its relative error. `done` is told how many bytes are through.
  Result<double> Write(const Choice& c, Search search, const std::function<void(uint64_t)>& done) {
    const Tensor& t = *c.tensor;
    const int64_t width = WidthOf(t), rows = RowsOf(t), step = PartRows(width, team_.size());
    const uint64_t row_bytes = RowBytes(c.dtype, static_cast<uint64_t>(width));
    RowSums total;
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t n = std::min(step, rows - row);
      bytes_.resize(static_cast<size_t>(n) * row_bytes);
      sums_.assign(static_cast<size_t>(n), {});
      Encode(c, search, row, n);
      for (int64_t i = 0; i < n; ++i) {
        const RowSums& s = sums_[static_cast<size_t>(i)];
        SLM_RETURN_IF_ERROR(CheckRow(t, row + i, c.dtype, s));
        total.lost += s.lost;
        total.power += s.power;
      }
      SLM_RETURN_IF_ERROR(out_.Data(bytes_));
      const uint64_t source_bytes = RowBytes(t.dtype, static_cast<uint64_t>(width));
      m_.DropPages(t.data.subspan(static_cast<size_t>(row) * source_bytes, static_cast<size_t>(n) * source_bytes));
      done(bytes_.size());
    }
    return total.power > 0 ? std::sqrt(total.lost / total.power) : 0.0;
  }

 private:
  struct Rows {
    std::vector<float> source, stored, weights;
  };

  void Encode(const Choice& c, Search search, int64_t first, int64_t n) {
    const Tensor& t = *c.tensor;
    const int64_t width = WidthOf(t);
    const size_t row_bytes = RowBytes(c.dtype, static_cast<uint64_t>(width));
    auto work = [&](int thread, int n_threads) {
      Rows& s = scratch_[static_cast<size_t>(thread)];
      s.source.resize(static_cast<size_t>(width));
      s.stored.resize(static_cast<size_t>(width));
      const Range mine = SplitRange(n, 1, thread, n_threads);
      for (int64_t i = mine.begin; i < mine.end; ++i) {
        RowSums& sums = sums_[static_cast<size_t>(i)];
        model::Dequantize(t.dtype, t.data, (first + i) * width, (first + i + 1) * width, s.source.data());
        sums.power = Squares(s.source);
        if (!std::isfinite(sums.power)) continue;
        const std::span<std::byte> to(bytes_.data() + static_cast<size_t>(i) * row_bytes, row_bytes);
        EncodeRow(c.dtype, search, s.source, PlainErrorWeights(c.dtype, s.source, &s.weights), to.data());
        model::Dequantize(c.dtype, to, 0, width, s.stored.data());
        sums.lost = SquaresLost(s.source, s.stored);
      }
    };
    team_.Run(work);
  }

  Status CheckRow(const Tensor& t, int64_t row, DType to, const RowSums& s) const {
    if (!std::isfinite(s.power))
      return Error(Code::kCorrupt, fmt::format("{}: {}: row {} holds NaN or infinity", m_.path, t.name, row),
                   "the weights are damaged: fetch or convert the model again");
    if (!std::isfinite(s.lost))
      return Error(Code::kUnsupported,
                   fmt::format("{}: {}: row {} is beyond the range of the f16 scales of {}", m_.path, t.name, row, Info(to).name),
                   "no type with f16 scales can hold it");
    return Ok();
  }

  const Model& m_;
  ThreadTeam& team_;
  model::gguf::FileWriter& out_;
  std::vector<Rows> scratch_;  // per thread
  std::vector<std::byte> bytes_;
  std::vector<RowSums> sums_;
};

Status WriteKept(const Model& m, const Tensor& t, model::gguf::FileWriter& out) {
  for (size_t at = 0; at < t.data.size(); at += kPartBytes) {
    const auto part = t.data.subspan(at, std::min<size_t>(kPartBytes, t.data.size() - at));
    SLM_RETURN_IF_ERROR(out.Data(part));
    m.DropPages(part);
  }
  return Ok();
}

// The tensors that an earlier run finished.
Status TakeOver(const Plan& plan, const WriteOptions& options, model::gguf::FileWriter& out, const std::function<void(uint64_t)>& done,
                Report* report) {
  if (!options.work) return Ok();
  for (const Choice& c : plan.choices) {
    const TensorReport* r = options.work->Finished(report->tensors.size());
    if (!r) break;
    if (r->name != c.tensor->name || r->from != c.tensor->dtype || r->to != c.dtype)
      return Error(Code::kInternal, fmt::format("the work that was begun has {} where {} belongs", r->name, c.tensor->name));
    SLM_RETURN_IF_ERROR(options.work->Skip(out.Skip()));
    report->tensors.push_back(*r);
    done(RowBytes(c.dtype, static_cast<uint64_t>(c.tensor->n_values())));
  }
  return Ok();
}

uint64_t KeyBytes(const Model& m) {
  uint64_t n = 0;
  if (!m.files.empty() && !m.tensors.empty())  // everything before the data of the first tensor
    for (const Tensor& t : m.tensors) {
      const auto whole = m.files.front().bytes();
      if (t.data.data() >= whole.data() && t.data.data() < whole.data() + whole.size()) {
        const auto before = static_cast<uint64_t>(t.data.data() - whole.data());
        n = n == 0 ? before : std::min(n, before);
      }
    }
  return n;
}

}  // namespace

uint64_t NeedBytes(const Model& m, const Plan& plan, const WriteOptions& options) {
  const int n_threads = options.n_threads;
  uint64_t most = 0;
  for (const Choice& c : plan.choices) {
    const int64_t width = WidthOf(*c.tensor);
    const auto rows = static_cast<uint64_t>(std::min(PartRows(width, n_threads), RowsOf(*c.tensor)));
    const uint64_t row =
        RowBytes(c.dtype, static_cast<uint64_t>(width)) + RowBytes(c.tensor->dtype, static_cast<uint64_t>(width)) + sizeof(RowSums);
    most = std::max(most, IsKept(c) ? kPartBytes : rows * row + 3 * sizeof(float) * static_cast<uint64_t>(width * n_threads));
  }
  // The keys lie in the map, in the writer, and once more as a list of views.
  if (options.text && plan.recipe.calibrated())
    most += std::max(CalibrationBytes(m, plan.recipe, options.text->tokens(), options.text->longest(), n_threads),
                     plan.recipe.allocates() ? SensitivityBytes(m, plan.recipe, *options.text, n_threads) : 0);
  return kFixedBytes + most + 4 * KeyBytes(m);
}

Result<Report> WriteGguf(const Model& m, const Plan& plan, const WriteOptions& options, const model::gguf::ByteSink& sink) {
  if (options.n_threads < 1) return Error(Code::kInvalidArgument, fmt::format("{} threads", options.n_threads), "ask for at least 1");
  SLM_ASSIGN_OR_RETURN(const auto team, ThreadTeam::Create(options.n_threads));
  model::gguf::FileWriter out;
  SLM_RETURN_IF_ERROR(model::gguf::CopyKeys(m, {"general.file_type", "general.quantization_version"}, &out));
  out.U32("general.file_type", FileTypeOf(MostBodyWeights(plan)));
  out.U32("general.quantization_version", 2);
  out.Text("slmkit.quantize.recipe", plan.recipe.name);
  if (plan.recipe.calibrated() && options.text) {
    out.Text("slmkit.quantize.calibration.sha256", options.text->sha256);
    out.U32("slmkit.quantize.calibration.sequences", static_cast<uint32_t>(options.text->sequences.size()));
    out.U32("slmkit.quantize.calibration.tokens", static_cast<uint32_t>(options.text->tokens()));
    out.Text("slmkit.quantize.calibration.seed", std::to_string(options.text->seed));
  }
  for (const auto& [key, text] : options.texts) out.Text(key, text);
  for (const Choice& c : plan.choices) out.Tensor(c.tensor->name, c.dtype, c.tensor->dims);
  SLM_RETURN_IF_ERROR(out.Begin(sink));
  if (options.work) SLM_RETURN_IF_ERROR(options.work->Begun());
  Report report;
  TensorStream stream(m, *team, out);
  CalibratedTensors layers(m, TaskOf(plan), options, {team.get(), options.isa});
  uint64_t written = 0;
  const auto done = [&](uint64_t n) {
    written += n;
    if (options.progress) options.progress(written);
  };
  SLM_RETURN_IF_ERROR(TakeOver(plan, options, out, done, &report));
  for (size_t i = report.tensors.size(); i < plan.choices.size(); ++i) {
    const Choice& c = plan.choices[i];
    double error = 0;
    SLM_ASSIGN_OR_RETURN(const StoredTensor* stored, layers.Find(c.tensor, c.layer));
    if (stored) {
      SLM_RETURN_IF_ERROR(out.Data(stored->bytes));
      error = stored->error;
      done(stored->bytes.size());
    } else if (IsKept(c)) {
      SLM_RETURN_IF_ERROR(WriteKept(m, *c.tensor, out));
      done(c.tensor->data.size());
    } else {
      SLM_ASSIGN_OR_RETURN(error, stream.Write(c, plan.recipe.search, done));
    }
    report.tensors.push_back({c.tensor->name, c.tensor->dtype, c.dtype, error});
    if (options.work) SLM_RETURN_IF_ERROR(options.work->Finish(report.tensors.back()));
  }
  report.layers = layers.TakeReports();
  SLM_RETURN_IF_ERROR(out.Finish());
  report.bytes = out.bytes_written();
  return report;
}

}  // namespace slm::quant
