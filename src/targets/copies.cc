// Nodes that only move or convert values, and what the model needs in memory. See audit.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "targets/audit.h"
#include "targets/read.h"

namespace slm::targets {
namespace {

int64_t BytesOf(const Value* v) {
  const int64_t n = v ? v->n_values() : -1;
  return n < 0 || v->type == onnx::ElementType::kUndefined ? -1 : static_cast<int64_t>(onnx::StoredBytes(v->type, n));
}

bool IsPast(const std::string& name, const Value& v) {
  return v.graph_input && name.find("past") != std::string::npos && v.shape.size() >= 3;
}

// A cache that grows by being copied: a graph's input joined with new values into a graph's output.
bool IsCacheConcat(const Flat& flat, int i) {
  const Value* out = flat.Output(i, 0);
  if (!out) return false;
  bool kept = out->graph_output;
  for (const int reader : out->consumers)
    if (const Value* next = flat.Output(reader, 0); flat.nodes[static_cast<size_t>(reader)].node.op_type == "QuantizeLinear")
      kept |= next && next->graph_output;
  const onnx::Node& n = flat.nodes[static_cast<size_t>(i)].node;
  for (size_t k = 0; kept && k < n.inputs.size(); ++k) {
    const Value* in = flat.Input(i, k);
    if (in && in->graph_input) return true;
    const int from = flat.Producer(i, k);
    if (from >= 0 && flat.nodes[static_cast<size_t>(from)].node.op_type == "DequantizeLinear")
      if (const Value* codes = flat.Input(from, 0); codes && codes->graph_input) return true;
  }
  return false;
}

const char* CopyKind(const Flat& flat, int i) {
  const std::string& op = flat.nodes[static_cast<size_t>(i)].node.op_type;
  const Value *in = flat.Input(i, 0), *out = flat.Output(i, 0);
  if (!in || !out || in->fixed) return nullptr;
  if (op == "Transpose") return "transpose";
  if (op == "Cast") return "cast";
  if (op == "Concat" && IsCacheConcat(flat, i)) return "KV concatenation";
  if (op == "QuantizeLinear" && in->graph_input) return "quantize at the border";
  if (op == "DequantizeLinear" && out->graph_output) return "dequantize at the border";
  if (op == "QuantizeLinear" && flat.Producer(i, 0) >= 0 &&
      flat.nodes[static_cast<size_t>(flat.Producer(i, 0))].node.op_type == "DequantizeLinear")
    return "requantize";
  return nullptr;
}

int64_t CacheBytes(const Flat& flat, int64_t context) {
  int64_t sum = 0;
  bool any = false;
  for (const auto& [name, v] : flat.values) {
    if (!IsPast(name, v)) continue;
    int64_t bytes = static_cast<int64_t>(onnx::Info(v.type).bits);
    for (size_t i = 0; i < v.shape.size(); ++i) {
      const int64_t open = i == 0 ? 1 : context;  // one sequence; the length is the option's
      if (v.shape[i].value < 0 && open <= 0) return -1;
      if (__builtin_mul_overflow(bytes, v.shape[i].value < 0 ? open : v.shape[i].value, &bytes)) return -1;
    }
    if (__builtin_add_overflow(sum, bytes / 8, &sum)) return -1;
    any = true;
  }
  return any ? sum : -1;
}

// How the fixed operand of a product or a table is stored; "": the node has none.
std::string StoredForm(const Flat& flat, int i) {
  const FlatNode& n = flat.nodes[static_cast<size_t>(i)];
  if (n.node.op_type == "MatMulNBits" || n.node.op_type == "GatherBlockQuantized")
    return fmt::format("{} bits in blocks of {} ({})", n.node.Int("bits", 4), n.node.Int("block_size", 0), n.node.op_type);
  const bool table = n.node.op_type == "Gather";
  if (!table && n.node.op_type != "MatMul" && n.node.op_type != "Gemm" && n.node.op_type != "Conv") return "";
  const size_t at = table ? 0 : 1;
  const Value* v = flat.Input(i, at);
  if (!v || !v->fixed || v->shape.size() < 2) return "";
  const onnx::ElementType codes = CodesBefore(flat, i, at);
  if (codes == onnx::ElementType::kUndefined) return TypeNames(Plain(v->type));
  const int from = flat.Producer(i, at);
  const onnx::Node& dequantize = flat.nodes[static_cast<size_t>(from)].node;
  const Value* scale = flat.Input(from, 1);
  const int64_t block = dequantize.Int("block_size", 0);
  const bool one = !scale || scale->n_values() == 1;
  return TypeNames(Plain(codes)) + (block > 0 ? fmt::format(" in blocks of {}", block)
                                    : one     ? ", one scale a tensor"
                                              : ", one scale a channel");
}

}  // namespace

std::vector<Copy> FindCopies(const Flat& flat) {
  std::map<std::string, Copy> found;
  for (int i = 0; i < static_cast<int>(flat.nodes.size()); ++i) {
    const char* kind = CopyKind(flat, i);
    if (!kind) continue;
    Copy& c = found[kind];
    c.what = kind;
    ++c.count;
    const int64_t bytes = BytesOf(flat.Output(i, 0));
    if (bytes < 0 || __builtin_add_overflow(c.bytes, bytes, &c.bytes)) ++c.n_unknown;
    c.nodes.push_back(flat.nodes[static_cast<size_t>(i)].label);
  }
  std::vector<Copy> out;
  for (auto& [kind, c] : found) out.push_back(std::move(c));
  return out;
}

void Measure(const Flat& flat, const Description& target, int64_t context, Report& report) {
  int64_t largest = 0;
  for (const auto& [name, v] : flat.values)
    if (v.tensor) {
      const int64_t bytes = static_cast<int64_t>(v.tensor->data.size());
      report.weights_bytes += bytes;
      largest = std::max(largest, bytes);
    }
  report.kv_bytes = CacheBytes(flat, context);
  std::map<std::string, int64_t> stored;
  for (int i = 0; i < static_cast<int>(flat.nodes.size()); ++i)
    if (const std::string form = StoredForm(flat, i); !form.empty()) ++stored[form];
  for (const auto& [form, count] : stored) report.weights.push_back({form, "", "", count});
  for (const Scheme& s : target.weights) report.target_weights.push_back({s.name, s.note, s.source, 0});
  for (const Scheme& s : target.activations) report.target_activations.push_back({s.name, s.note, s.source, 0});
  for (const Limit& l : target.bounds) {
    int64_t is = report.weights_bytes;
    if (l.what == "tensor_bytes") is = largest;
    if (l.what == "kv_bytes") is = report.kv_bytes;
    if (l.what == "weights_and_kv_bytes") is = report.weights_bytes + std::max<int64_t>(0, report.kv_bytes);
    report.bounds.push_back({l.what, l.note, l.source, l.most, is});
  }
}

}  // namespace slm::targets
