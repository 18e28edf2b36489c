// See open_static.h. The ONNX files are read with our own reader first, as in open_ort.cc.
#include "open_static.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "backend/ort/static.h"
#include "base/clock.h"
#include "context_cache.h"
#include "onnx/onnx.h"
#include "onnx/static_folder/static_folder.h"
#include "onnx_cost.h"
#include "open_ort.h"
#include "ort_flags.h"
#include "static_graphs.h"

namespace slm::cli {
namespace {

namespace ort = backend::ort;

ort::StaticType TypeOf(onnx::StaticElement e) {
  switch (e) {
    case onnx::StaticElement::kU16: return ort::StaticType::kU16;
    case onnx::StaticElement::kI16: return ort::StaticType::kI16;
    case onnx::StaticElement::kF32: break;
  }
  return ort::StaticType::kF32;
}

std::vector<ort::StaticInput> InputsOf(const onnx::StaticFolder& f) {
  std::vector<ort::StaticInput> out;
  for (const onnx::StaticGraphInput& i : f.manifest.inputs) {
    ort::StaticInput to{.name = i.name, .repeats = i.repeats, .window = i.window, .allowed = i.allowed, .masked = i.masked};
    if (i.rows == onnx::StaticGraphInput::Rows::kMask) {
      to.rows = ort::StaticInput::Rows::kMask;
    } else {
      to.rows = i.rows == onnx::StaticGraphInput::Rows::kToken ? ort::StaticInput::Rows::kToken : ort::StaticInput::Rows::kPosition;
      const model::Tensor& table = f.Table(i.table);
      to.table = {table.data, table.dims[1] * static_cast<int64_t>(onnx::BytesOf(f.manifest.input_type))};
    }
    out.push_back(std::move(to));
  }
  return out;
}

void AddPrefix(const onnx::StaticFolder& f, ort::StaticDecoder& d) {
  const onnx::StaticManifest& m = f.manifest;
  d.prefix_tokens = m.prefix_tokens;
  if (m.prefix_tokens.empty()) return;
  for (int layer = 0; layer < m.n_layers; ++layer) {
    d.prefix_keys.push_back(f.Table(onnx::PrefixKeyName(layer)).data);
    d.prefix_values.push_back(f.Table(onnx::PrefixValueName(layer)).data);
  }
  if (m.prefix_logits.empty()) return;
  const std::span<const std::byte> logits = f.Table(m.prefix_logits).data;  // at any place of the file
  d.prefix_logits.resize(logits.size() / sizeof(float));
  std::memcpy(d.prefix_logits.data(), logits.data(), logits.size());
}

// The graphs' description, from what they were exported as, and of each what was compiled of it.
struct Described {
  ort::StaticDecoder decoder;
  std::vector<GraphContext> contexts;  // by graph
};

Result<Described> Describe(const Io& io, const onnx::StaticFolder& f, const KnownSums& sums, const ort::Runtime& runtime,
                           const OpenOptions& o) {
  const onnx::StaticManifest& m = f.manifest;
  Described out;
  ort::StaticDecoder& d = out.decoder;
  d = {.graphs = {},
       .context = m.context,
       .n_layers = m.n_layers,
       .n_kv_heads = m.n_kv_heads,
       .head_dim = m.head_dim,
       .vocab_size = m.vocab_size,
       .input_type = TypeOf(m.input_type),
       .cache_type = TypeOf(m.cache_type),
       .inputs = InputsOf(f),
       .logits = m.logits};
  d.key_scales = m.key_scales, d.value_scales = m.value_scales;
  d.holds = f.host;
  AddPrefix(f, d);
  for (size_t i = 0; i < m.graphs.size(); ++i) {
    const bool decodes = i + 1 == m.graphs.size();
    const std::string& device = decodes ? o.decode_device : o.prefill_device;
    SLM_ASSIGN_OR_RETURN(ort::Choice choice, StaticChoice(o.ort, device.empty() ? o.device : device, o.fallback));
    const std::string path = f.path + "/" + m.graphs[i].name;
    SLM_ASSIGN_OR_RETURN(const onnx::Model graph, onnx::ReadModel(path));
    SLM_RETURN_IF_ERROR(CheckContexts(graph, runtime, choice));
    SLM_RETURN_IF_ERROR(CheckExternalData(f, graph, sums));
    if (decodes) {  // the graphs share their weights
      const DecodeCost cost = CostOf(graph);
      d.weights_bytes = cost.weights_bytes, d.bytes_per_token = cost.bytes_per_token, d.ops_per_token = cost.ops_per_token;
    }
    out.contexts.push_back(FindGraphContext(io, runtime, choice, graph, sums));
    d.graphs.push_back({path, m.graphs[i].tokens, std::move(choice)});
  }
  return out;
}

bool AnyCompiled(const std::vector<GraphContext>& contexts) {
  return std::any_of(contexts.begin(), contexts.end(), [](const GraphContext& c) { return !c.context.empty(); });
}

// From compiled graphs where there are some; when the device does not take them, from the folder's own, with the reason.
Result<ort::OrtBackend> Create(const std::shared_ptr<ort::Runtime>& runtime, const Described& described, const ort::OrtOptions& options,
                               std::vector<GraphContext>& contexts) {
  if (!AnyCompiled(contexts)) return ort::CreateStaticBackend(runtime, described.decoder, options);
  ort::StaticDecoder compiled = described.decoder;
  for (size_t i = 0; i < contexts.size(); ++i)
    if (!contexts[i].context.empty()) compiled.graphs[i].path = contexts[i].context;
  auto made = ort::CreateStaticBackend(runtime, compiled, options);
  if (made.ok() || made.error().code() == Code::kLimit) return made;
  for (GraphContext& c : contexts)
    if (!std::exchange(c.context, "").empty()) c.why = c.graph + ": the compiled graph does not load: " + made.error().message();
  return ort::CreateStaticBackend(runtime, described.decoder, options);
}

}  // namespace

Result<OpenedModel> OpenStatic(const Io& io, const std::string& path, const OpenOptions& o) {
  const int64_t start_ns = NowNs();
  SLM_ASSIGN_OR_RETURN(const onnx::StaticFolder folder, onnx::ReadStaticFolder(path));
  const onnx::StaticManifest& m = folder.manifest;
  SLM_ASSIGN_OR_RETURN(const KnownSums sums, CheckSums(folder));
  if (m.graphs.size() == 1 && o.prefill_device != o.decode_device)
    return Error(Code::kInvalidArgument, path + ": one graph for prompts and tokens, and two devices", "give one with --device");
  SLM_ASSIGN_OR_RETURN(const auto runtime, OpenOrtRuntime(o.ort, ThreadsOr(o.n_threads)));
  SLM_ASSIGN_OR_RETURN(const ort::OrtOptions options, OrtOptionsOf(o, m.context));
  SLM_ASSIGN_OR_RETURN(const Described described, Describe(io, folder, sums, *runtime, o));
  SLM_ASSIGN_OR_RETURN(OpenedModel opened, OpenText(path, {.vocab_size = m.vocab_size,
                                                           .d_model = m.d_model,
                                                           .n_layers = m.n_layers,
                                                           .context = m.context,
                                                           .bos_ids = m.bos_ids,
                                                           .eos_ids = m.eos_ids}));
  std::vector<GraphContext> contexts = described.contexts;
  SLM_ASSIGN_OR_RETURN(ort::OrtBackend made, Create(runtime, described, options, contexts));
  for (const GraphContext& c : contexts)
    if (!c.why.empty()) io.err("slm: " + c.why + ": compiled at load; slm compile makes it anew\n");
  for (const std::string& note : made.notes) io.err("slm: " + note + "\n");
  std::copy_if(contexts.begin(), contexts.end(), std::back_inserter(opened.contexts), [](const auto& c) { return !c.graph.empty(); });
  opened.backend = std::move(made.backend);
  opened.begin = m.prefix_tokens;
  opened.kv_type = made.kv_type;
  opened.load_ns = NowNs() - start_ns;
  return opened;
}

}  // namespace slm::cli
