// See open_ort.h. The ONNX file is read with our own reader first: it checks sizes, names and where external data leads, and counts the
// bytes that a token reads. ONNX Runtime opens it after that.
#include "open_ort.h"

#include <map>
#include <set>

#include "base/clock.h"
#include "context_cache.h"
#include "importer/importer.h"
#include "onnx/genai/genai.h"
#include "onnx/onnx.h"
#include "ort_flags.h"

namespace slm::cli {
namespace {

namespace ort = backend::ort;

// Multiplies and adds of a product with a constant matrix for one token; 0 where the sizes are none.
int64_t OpsOf(const onnx::Node& n, const std::map<std::string, const onnx::Tensor*>& constants) {
  if (n.op_type == "MatMulNBits") {
    constexpr int64_t kMostWidth = int64_t{1} << 30;
    const int64_t k = n.Int("K", 0), width = n.Int("N", 0);
    return k < 1 || width < 1 || k > kMostWidth || width > kMostWidth / k ? 0 : 2 * k * width;
  }
  if (n.op_type != "MatMul" || n.inputs.size() != 2) return 0;
  const auto b = constants.find(n.inputs[1]);
  return b == constants.end() ? 0 : 2 * b->second->n_values();
}

// Fills bytes of the weights, each counted once, and what a decode step reads of them: all but tables of which it takes a row.
void CountWeights(const onnx::Model& m, ort::Decoder& d) {
  std::map<std::string, const onnx::Tensor*> constants;
  for (const onnx::Tensor& t : m.graph.initializers) constants[t.name] = &t;
  std::set<const std::byte*> held, read;
  for (const onnx::Tensor& t : m.graph.initializers)
    if (!t.data.empty() && held.insert(t.data.data()).second) d.weights_bytes += static_cast<int64_t>(t.data.size());
  for (const onnx::Node& n : m.graph.nodes) {
    d.ops_per_token += OpsOf(n, constants);
    if (n.op_type == "Gather" || n.op_type == "GatherBlockQuantized") continue;
    for (const std::string& input : n.inputs) {
      const auto t = constants.find(input);
      if (t == constants.end() || t->second->data.empty() || !read.insert(t->second->data.data()).second) continue;
      d.bytes_per_token += static_cast<int64_t>(t->second->data.size());
    }
  }
}

Result<ort::Decoder> DecoderOf(const std::string& path, const onnx::GenAiConfig& c, const ort::Runtime& runtime,
                               const ort::Choice& choice) {
  if (!onnx::OnlyDecoder(c))
    return Error(Code::kUnsupported, path + ": the model is not one decoder file (type " + c.type + ")",
                 "pipelines and models with encoders are not run yet");
  ort::Decoder d;
  d.path = path + "/" + c.files[0].name;
  d.context = c.context_length;
  d.n_layers = c.n_layers;
  d.vocab_size = c.vocab_size;
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
  CountWeights(m, d);
  return d;
}

Result<std::shared_ptr<model::Model>> LoadText(const std::string& path, const onnx::GenAiConfig& c) {
  SLM_ASSIGN_OR_RETURN(std::shared_ptr<model::Model> m, model::LoadModel(path, model::LoadWhat::kTokenizerOnly));
  m->config.vocab_size = c.vocab_size;
  m->config.d_model = c.d_model;
  m->config.n_layers = c.n_layers;
  m->config.max_context = c.context_length;
  if (!c.bos_ids.empty()) m->config.bos_ids.assign(c.bos_ids.begin(), c.bos_ids.end());  // else the tokenizer's
  if (!c.eos_ids.empty()) m->config.eos_ids.assign(c.eos_ids.begin(), c.eos_ids.end());
  return m;
}

// What ONNX Runtime has no say in here.
Status CheckFlags(const OpenOptions& o) {
  if (o.compute == "f32")
    return Error(Code::kInvalidArgument, "--compute f32 is of own kernels", "export the folder with --exact for f32 activations");
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

}  // namespace

bool TakesOrt(const OpenOptions& o, const std::string& path) {
  if (o.backend != "auto" || !importer::IsOnnxModel(path)) return o.backend == "ort";
  const bool any_flag = !o.ort.library.empty() || !o.ort.libraries.empty() || !o.ort.options.empty();
  return any_flag || (o.device != "auto" && o.device != "cpu");
}

Result<OpenedModel> OpenWithOrt(const Io& io, const std::string& path, const OpenOptions& o) {
  const int64_t start_ns = NowNs();
  SLM_RETURN_IF_ERROR(CheckFlags(o));
  if (!onnx::IsGenAiFolder(path))
    return Error(Code::kInvalidArgument, path + ": not a folder for ONNX Runtime GenAI, which --backend ort takes",
                 "slm export MODEL --to genai -o FOLDER writes one");
  SLM_ASSIGN_OR_RETURN(const auto runtime, OpenOrtRuntime(o.ort, ThreadsOr(o.n_threads)));
  SLM_ASSIGN_OR_RETURN(const onnx::GenAiConfig config, onnx::ReadGenAiConfig(path));
  SLM_ASSIGN_OR_RETURN(const ort::OrtOptions options, OrtOptionsOf(o, config.context_length));
  SLM_ASSIGN_OR_RETURN(const ort::Decoder decoder, DecoderOf(path, config, *runtime, options.choice));
  OpenedModel opened;
  SLM_ASSIGN_OR_RETURN(const std::shared_ptr<model::Model> text, LoadText(path, config));
  opened.model = text;
  auto tokenizer = BuildTokenizer(text->tokenizer);
  if (!tokenizer.ok()) return tokenizer.error().At(path);
  opened.tokenizer = std::make_unique<text::Tokenizer>(tokenizer.Take());
  text->ReleaseVocabulary();
  SLM_ASSIGN_OR_RETURN(ort::OrtBackend made, ort::CreateOrtBackend(runtime, decoder, options));
  for (const std::string& note : made.notes) io.err("slm: " + note + "\n");
  opened.backend = std::move(made.backend);
  opened.kv_type = made.kv_type;
  opened.load_ns = NowNs() - start_ns;
  return opened;
}

}  // namespace slm::cli
