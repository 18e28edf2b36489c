// See open_ort.h. The ONNX file is read with our own reader first: it checks sizes, names and where external data leads, and counts the
// bytes that a token reads. ONNX Runtime opens it after that.
#include "open_ort.h"

#include <algorithm>
#include <set>

#include "base/clock.h"
#include "context_cache.h"
#include "importer/importer.h"
#include "onnx/genai/genai.h"
#include "onnx/onnx.h"
#include "onnx/static_folder/static_folder.h"
#include "onnx_cost.h"
#include "open_static.h"
#include "ort_flags.h"

namespace slm::cli {
namespace {

namespace ort = backend::ort;

constexpr size_t kGqaCos = 7;  // cos_cache among the inputs of GroupQueryAttention

// How the graph turns keys, where its attention nodes say so, with constant tables, and all the same.
void DescribeKeys(const onnx::Model& m, ort::Decoder& d) {
  using Pairs = ort::Decoder::Pairs;
  std::set<std::pair<Pairs, int64_t>> ways;
  for (const onnx::Node& n : m.graph.nodes) {
    if (n.op_type != "GroupQueryAttention") continue;
    const auto table = std::find_if(m.graph.initializers.begin(), m.graph.initializers.end(),
                                    [&](const onnx::Tensor& t) { return n.inputs.size() > kGqaCos && t.name == n.inputs[kGqaCos]; });
    const bool known =
        n.Int("do_rotary", 0) != 0 && table != m.graph.initializers.end() && table->dims.size() == 2 && table->dims[1] <= INT16_MAX;
    if (!known) return;
    ways.emplace(n.Int("rotary_interleaved", 0) != 0 ? Pairs::kNeighbours : Pairs::kHalves, 2 * table->dims[1]);
  }
  if (ways.size() != 1) return;
  d.key_pairs = ways.begin()->first;
  d.rotary_dim = static_cast<int>(ways.begin()->second);
}

Result<ort::Decoder> DecoderOf(const std::string& path, const onnx::GenAiConfig& c, const ort::Runtime& runtime,
                               const ort::Choice& choice) {
  if (!onnx::OnlyDecoder(c))
    return Error(Code::kUnsupported, path + ": the model is not one decoder file (type " + c.type + ")",
                 "own kernels run pipelines: leave out --backend and devices; models with encoders are not run yet");
  ort::Decoder d;
  d.path = path + "/" + c.files[0].name;
  d.context = c.context_length;
  d.n_layers = c.n_layers;
  d.vocab_size = c.vocab_size;
  d.n_kv_heads = c.n_kv_heads, d.head_dim = c.head_dim;
  d.input_ids = c.names.input_ids;
  d.attention_mask = c.names.attention_mask;
  d.position_ids = c.names.position_ids;
  d.past_key = c.names.past_key;
  d.past_value = c.names.past_value;
  d.logits = c.names.logits;
  d.present_key = c.names.present_key;
  d.present_value = c.names.present_value;
  SLM_ASSIGN_OR_RETURN(const onnx::Model m, onnx::ReadModel(d.path));
  SLM_RETURN_IF_ERROR(CheckContexts(m, runtime, choice));
  const DecodeCost cost = CostOf(m);
  d.weights_bytes = cost.weights_bytes, d.bytes_per_token = cost.bytes_per_token, d.ops_per_token = cost.ops_per_token;
  DescribeKeys(m, d);
  return d;
}

TextFacts FactsOf(const onnx::GenAiConfig& c) {
  return {.vocab_size = c.vocab_size,
          .d_model = c.d_model,
          .n_layers = c.n_layers,
          .context = c.context_length,
          .bos_ids = {c.bos_ids.begin(), c.bos_ids.end()},
          .eos_ids = {c.eos_ids.begin(), c.eos_ids.end()}};
}

}  // namespace

Result<OpenedModel> OpenText(const std::string& path, const TextFacts& f) {
  OpenedModel opened;
  SLM_ASSIGN_OR_RETURN(const std::shared_ptr<model::Model> m, model::LoadModel(path, model::LoadWhat::kTokenizerOnly));
  m->config.vocab_size = f.vocab_size;
  m->config.d_model = f.d_model;
  m->config.n_layers = f.n_layers;
  m->config.max_context = f.context;
  if (!f.bos_ids.empty()) m->config.bos_ids = f.bos_ids;  // else the tokenizer's
  if (!f.eos_ids.empty()) m->config.eos_ids = f.eos_ids;
  opened.model = m;
  auto tokenizer = BuildTokenizer(m->tokenizer);
  if (!tokenizer.ok()) return tokenizer.error().At(path);
  opened.tokenizer = std::make_unique<text::Tokenizer>(tokenizer.Take());
  m->ReleaseVocabulary();
  return opened;
}

Status CheckOrtFlags(const OpenOptions& o) {
  if (o.compute == "f32")
    return Error(Code::kInvalidArgument, "--compute f32 is of own kernels",
                 "leave it out: exported folders say how they compute (--exact, or --weights f32 of static graphs)");
  if (o.kv != OpenOptions().kv)
    return Error(Code::kInvalidArgument, "--kv is of own kernels", "leave it out: the graph says what its cache holds");
  if (!o.passes_off.empty()) return Error(Code::kInvalidArgument, "--passes-off is of own kernels", "leave it out");
  return Ok();
}

Result<ort::OrtOptions> OrtOptionsOf(const OpenOptions& o, int own) {
  ort::OrtOptions out;
  SLM_ASSIGN_OR_RETURN(out.context, ContextFor(o, own));
  if (o.chunk > 0) out.chunk = o.chunk;
  out.logits = o.logits;
  if (!o.memory.empty()) {
    SLM_ASSIGN_OR_RETURN(out.memory_budget_bytes, ParseBytes(o.memory));
  }
  SLM_ASSIGN_OR_RETURN(out.choice, OrtChoice(o.ort, o.device, o.fallback));
  return out;
}

bool TakesOrt(const OpenOptions& o, const std::string& path) {
  if (onnx::IsStaticFolder(path)) return o.backend != "cpu";
  if (o.backend != "auto" || !importer::IsOnnxModel(path)) return o.backend == "ort";
  return AnyLibrary(o.ort) || (o.device != "auto" && o.device != "cpu");
}

Result<OpenedModel> OpenWithOrt(const Io& io, const std::string& path, const OpenOptions& o) {
  const int64_t start_ns = NowNs();
  SLM_RETURN_IF_ERROR(CheckOrtFlags(o));
  if (onnx::IsStaticFolder(path)) return OpenStatic(io, path, o);
  if (!onnx::IsGenAiFolder(path))
    return Error(Code::kInvalidArgument, path + ": not a folder for ONNX Runtime GenAI nor of static graphs, which --backend ort takes",
                 "slm export MODEL --to genai -o FOLDER writes one");
  SLM_ASSIGN_OR_RETURN(const auto runtime, OpenOrtRuntime(o.ort, ThreadsOr(o.n_threads)));
  SLM_ASSIGN_OR_RETURN(const onnx::GenAiConfig config, onnx::ReadGenAiConfig(path));
  SLM_ASSIGN_OR_RETURN(const ort::OrtOptions options, OrtOptionsOf(o, config.context_length));
  SLM_ASSIGN_OR_RETURN(const ort::Decoder decoder, DecoderOf(path, config, *runtime, options.choice));
  SLM_ASSIGN_OR_RETURN(OpenedModel opened, OpenText(path, FactsOf(config)));
  SLM_ASSIGN_OR_RETURN(ort::OrtBackend made, ort::CreateOrtBackend(runtime, decoder, options));
  for (const std::string& note : made.notes) io.err("slm: " + note + "\n");
  opened.backend = std::move(made.backend);
  opened.kv_type = made.kv_type;
  opened.load_ns = NowNs() - start_ns;
  return opened;
}

}  // namespace slm::cli
