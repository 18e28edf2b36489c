// Puts the rooms together: file -> (tokenizer | graph -> passes -> back end). The two halves share nothing but the mapped file,
// so the tokenizer's tables are built while the weights are packed.
#include "open_model.h"

#include <fmt/format.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/threads.h"
#include "checks.h"
#include "graph/graph.h"
#include "load_decoder.h"
#include "onnx/static_folder/static_folder.h"
#include "open_ort.h"
#include "ort_flags.h"
#include "placement.h"
#include "store.h"

namespace slm::cli {
namespace {

Result<backend::CpuOptions> CpuOptionsOf(const OpenOptions& o, const model::Model& m) {
  backend::CpuOptions c;
  c.n_threads = ThreadsOr(o.n_threads);
  SLM_ASSIGN_OR_RETURN(c.context, ContextFor(o, m.config.max_context));
  const auto* type = std::find(std::begin(kernels::kKvTypeNames), std::end(kernels::kKvTypeNames), o.kv);
  SLM_ASSERT(type != std::end(kernels::kKvTypeNames));  // the option is checked where it is declared
  c.kv_type = static_cast<kernels::KvType>(type - std::begin(kernels::kKvTypeNames));
  c.compute = o.compute == "f32" ? backend::ComputeMode::kF32 : backend::ComputeMode::kNative;
  SLM_ASSIGN_OR_RETURN(c.isa, IsaOfEnvironment(DetectCpu()));
  c.logits = o.logits;
  c.float_weights = o.float_weights;
  if (o.chunk > 0) c.chunk = o.chunk;
  if (!o.memory.empty()) {
    SLM_ASSIGN_OR_RETURN(c.memory_budget_bytes, ParseBytes(o.memory));
  }
  return c;
}

Status CheckDevice(const OpenOptions& o) {
  const std::vector<std::string> devices = DeviceList(o.device);
  if (std::find(devices.begin(), devices.end(), "cpu") != devices.end()) return Ok();
  return Error(Code::kUnavailable, "device '" + o.device + "' is not in this build for this model",
               "slm devices lists what is: use --device cpu or auto; --backend ort reaches others with an exported folder");
}

Result<std::unique_ptr<backend::Backend>> BuildBackend(const OpenOptions& o, const LoadedDecoder& d) {
  SLM_ASSIGN_OR_RETURN(const backend::CpuOptions cpu, CpuOptionsOf(o, *d.model));
  SLM_ASSIGN_OR_RETURN(graph::Graph g, GraphOf(d, cpu.context));
  SLM_RETURN_IF_ERROR(graph::RunPasses(g, o.passes_off));
  SLM_ASSIGN_OR_RETURN(auto b, backend::CreateCpuBackend(g, cpu));
  if (o.fallback == Fallback::kForbidden)
    SLM_RETURN_IF_ERROR(CheckPlacement(b->Placement(), o.device == "auto" ? b->capabilities().device : DeviceList(o.device)[0]));
  return b;
}

}  // namespace

Status CheckContext(int context, int own) {
  if (context <= own || own <= 0) return Ok();
  return Error(Code::kInvalidArgument, fmt::format("--ctx {} is more than the {} tokens this model was made for", context, own),
               fmt::format("use --ctx {} or less", own));
}

Result<int> ContextFor(const OpenOptions& o, int own) {
  if (own <= 0) own = kDefaultContext;
  const bool fewer_will_do = o.context_least > 0 && o.context_least <= own;
  if (o.context > own && !fewer_will_do && !o.context_for.empty())
    return Error(Code::kInvalidArgument,
                 fmt::format("{} needs {} tokens of context, this model was made for {}", o.context_for, o.context, own),
                 "lower " + o.context_from);
  if (!fewer_will_do) SLM_RETURN_IF_ERROR(CheckContext(o.context, own));
  return std::min(own, o.context > 0 ? o.context : kDefaultContext);
}

text::TokenizerParts PartsOf(const model::TokenizerSource& s) {
  const auto stated = [](int v) { return v < 0 ? std::optional<bool>() : std::optional<bool>(v != 0); };
  text::TokenizerParts p;
  p.model = s.ggml_model;
  p.pre = s.ggml_pre;
  p.tokens = s.tokens;
  p.kinds = s.token_types;
  p.scores = s.scores;
  p.merges = s.merges;
  p.add_bos = stated(s.add_bos);
  p.add_eos = stated(s.add_eos);
  p.add_space_prefix = stated(s.add_space_prefix);
  p.remove_extra_whitespaces = stated(s.remove_extra_whitespaces);
  p.bos = s.bos, p.eos = s.eos, p.unk = s.unk, p.pad = s.pad, p.eot = s.eot, p.eom = s.eom;
  return p;
}

Result<text::Tokenizer> BuildTokenizer(const model::TokenizerSource& s) {
  if (s.kind == "gguf") return text::Tokenizer::FromParts(PartsOf(s));
  if (!s.tokenizer_json.empty()) return text::Tokenizer::FromJson(s.tokenizer_json, s.tokenizer_config_json);
  if (s.vocab_json.empty() && s.spm_model.empty())
    return Error(
        Code::kNotFound, "the model has no tokenizer",
        "a GGUF file needs tokenizer.ggml.* keys, a Hugging Face folder tokenizer.json, or vocab.json with merges.txt, or tokenizer.model");
  text::TokenizerPieces p;
  p.vocab_json = s.vocab_json;
  p.merges_txt = s.merges_txt;
  p.sentencepiece = s.spm_model;
  p.config_json = s.tokenizer_config_json;
  p.added_tokens_json = s.added_tokens_json;
  return text::Tokenizer::FromPieces(p);
}

CLI::Option* AddThreads(CLI::App& app, int& n_threads) {
  return app.add_option("-t,--threads", n_threads, "threads; 0: all physical cores this process may use")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
}

Result<Isa> IsaOfEnvironment(const CpuFeatures& cpu) {
  const char* forced = std::getenv("SLM_FORCE_ISA");
  return ChooseIsa(cpu, forced ? forced : "");
}

int ThreadsOr(int n_threads) { return n_threads > 0 ? n_threads : DefaultThreadCount(); }

CLI::Option* AddMemory(CLI::App& app, std::string& memory) {
  return app.add_option("--mem", memory, "memory budget (600M, 2G): exit 3 instead of using more")->check([](const std::string& s) {
    const auto bytes = ParseBytes(s);
    return bytes.ok() ? std::string() : bytes.error().message() + ": " + bytes.error().hint();
  });
}

void AddOpenOptions(CLI::App& app, OpenOptions& o) {
  app.add_option("MODEL", o.model, "path of a GGUF file, Hugging Face or ONNX folder, or a name in the store")->required();
  const char* group = "Loading";
  app.add_option("--device", o.device,
                 "devices to try, best first: auto, or npu, gpu, cpu, names of execution providers, with commas between")
      ->capture_default_str()
      ->group(group);
  app.add_option("--prefill-device", o.prefill_device, "devices for prompts, as --device; the KV cache is handed over")->group(group);
  app.add_option("--decode-device", o.decode_device, "devices for the tokens after them")->group(group);
  app.add_option("--prefill-model", o.prefill_model, "another form of MODEL for prompts, as a folder of slm export --to qdq")->group(group);
  app.add_flag_callback(
         "--no-fallback", [&o] { o.fallback = Fallback::kForbidden; }, "fail (exit 3) when an operator does not run on the device")
      ->group(group);
  AddThreads(app, o.n_threads)->group(group);
  app.add_option("-c,--ctx", o.context, "tokens of context; 0: the model's own, at most " + std::to_string(kDefaultContext))
      ->capture_default_str()
      ->check(FromZero())
      ->group(group);
  app.add_option("--kv", o.kv, "type of the KV cache; int8 takes half the memory of f16")
      ->capture_default_str()
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kernels::kKvTypeNames), std::end(kernels::kKvTypeNames))))
      ->group(group);
  app.add_option("--compute", o.compute, "native: quantized weights as they are; f32: everything in f32, slow and exact")
      ->capture_default_str()
      ->check(CLI::IsMember({"native", "f32"}))
      ->group(group);
  app.add_option("--passes-off", o.passes_off, "graph passes to leave out, separated by commas; all: every one")
      ->delimiter(',')
      ->group(group);
  AddMemory(app, o.memory)->group(group);
  app.add_option(
         "--backend", o.backend,
         "cpu: own kernels; ort: ONNX Runtime, for folders of ONNX Runtime GenAI; auto: ort where another device or one of its options is "
         "asked for")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "ort"}))
      ->group("ONNX Runtime");
  AddOrtFlags(app, o.ort);
}

namespace {
// What loading needed and running will not: the vocabulary's lists and pages, the allocator's free lists. Embedding rows that a
// model reads from its file come back by themselves.
void LetGo(model::Model& m) {
  m.ReleaseVocabulary();
  for (const MappedFile& f : m.files) f.Drop(f.bytes());
  malloc_trim(0);
}
// One side of two: no further split. Options of own kernels are for the side that they compute.
Result<OpenOptions> SideOf(const Io& io, const OpenOptions& o, const std::string& model, const std::string& device) {
  OpenOptions side = o;
  side.model = model;
  if (!device.empty()) side.device = device;
  side.prefill_device = side.decode_device = side.prefill_model = "";
  SLM_ASSIGN_OR_RETURN(const std::string path, ResolveModel(io, model));
  if (!TakesOrt(side, path)) {
    side.ort = {};
    return side;
  }
  side.kv = OpenOptions().kv;
  side.compute = OpenOptions().compute;
  side.passes_off.clear();
  return side;
}

// The decode side gives the tokenizer and gets what the other left of the memory budget.
Result<OpenedModel> OpenHybrid(const Io& io, const OpenOptions& o) {
  const int64_t start_ns = NowNs();
  const std::string& other = o.prefill_model.empty() ? o.model : o.prefill_model;
  SLM_ASSIGN_OR_RETURN(const OpenOptions first, SideOf(io, o, other, o.prefill_device));
  SLM_ASSIGN_OR_RETURN(OpenOptions second, SideOf(io, o, o.model, o.decode_device));
  second.logits = backend::LogitsOf::kLastToken;
  SLM_ASSIGN_OR_RETURN(OpenedModel prefill, OpenModel(io, first));
  SLM_ASSIGN_OR_RETURN(second.memory, MemoryLeft(o, prefill));
  // Of one size: factors of LongRoPE are chosen by it, and slots that only one side has are never used.
  second.context = prefill.backend->capabilities().max_context;
  second.context_for = "the prefill side, " + other + ",";
  second.context_from = "--ctx to what both were made for";
  SLM_ASSIGN_OR_RETURN(OpenedModel opened, OpenModel(io, second));
  SLM_ASSIGN_OR_RETURN(backend::HybridBackend both, backend::CreateHybridBackend(std::move(prefill.backend), std::move(opened.backend)));
  opened.backend = std::move(both.backend);
  opened.hand_over = both.hand_over;
  if (!prefill.begin.empty()) opened.begin = prefill.begin;
  opened.contexts.insert(opened.contexts.begin(), prefill.contexts.begin(), prefill.contexts.end());
  if (prefill.kv_type != opened.kv_type) opened.kv_type = prefill.kv_type + "+" + opened.kv_type;
  opened.load_ns = NowNs() - start_ns;
  return opened;
}

}  // namespace

Result<std::string> MemoryLeft(const OpenOptions& o, const OpenedModel& m) {
  if (o.memory.empty()) return std::string();
  SLM_ASSIGN_OR_RETURN(const int64_t all, ParseBytes(o.memory));
  const auto& c = m.backend->capabilities();
  const int64_t used = c.weights_bytes + c.kv_bytes + c.activations_bytes;
  if (used < all) return std::to_string(all - used);
  return Error(Code::kLimit,
               "--mem " + o.memory + " leaves nothing beside " + m.model->path + ", which takes " + std::to_string(used) + " bytes",
               "give more --mem");
}

Result<OpenedModel> OpenModel(const Io& io, const OpenOptions& o) {
  const int64_t start_ns = NowNs();
  SLM_ASSIGN_OR_RETURN(const std::string path, ResolveModel(io, o.model));
  const bool split = !o.prefill_device.empty() || !o.decode_device.empty();
  if (!o.prefill_model.empty() || (split && !onnx::IsStaticFolder(path))) return OpenHybrid(io, o);
  if (TakesOrt(o, path)) return OpenWithOrt(io, path, o);
  SLM_RETURN_IF_ERROR(CheckDevice(o));
  if (!o.ort.power.empty())
    return Error(Code::kInvalidArgument, "--power is of execution providers, and own kernels run " + o.model,
                 "leave it out, or choose a device of ONNX Runtime");
  if (AnyLibrary(o.ort)) io.err("slm: own kernels run " + o.model + ": --ort, --ep-library and --ep-option change nothing\n");
  OpenedModel opened;
  SLM_ASSIGN_OR_RETURN(const LoadedDecoder loaded, LoadDecoder(path));
  opened.model = loaded.model;

  std::optional<Result<text::Tokenizer>> tokenizer;
  std::thread text_thread([&] { tokenizer.emplace(BuildTokenizer(opened.model->tokenizer)); });
  auto built = BuildBackend(o, loaded);
  text_thread.join();
  if (!built.ok()) return built.error();
  if (!tokenizer->ok()) return tokenizer->error().At(path);
  opened.backend = built.Take();
  opened.kv_type = o.kv;
  opened.begin = loaded.begin;
  opened.tokenizer = std::make_unique<text::Tokenizer>(tokenizer->Take());
  LetGo(*loaded.model);
  opened.load_ns = NowNs() - start_ns;
  return opened;
}

Result<int64_t> ParseBytes(const std::string& text) {
  const Error bad(Code::kInvalidArgument, "'" + text + "' is not a number of bytes", "write 600M, 2G, 512K or plain bytes");
  double n = 0;
  const char* end = text.data() + text.size();
  const auto [at, ec] = std::from_chars(text.data(), end, n, std::chars_format::fixed);
  if (ec != std::errc()) return bad;
  std::string unit(at, end);
  std::transform(unit.begin(), unit.end(), unit.begin(), [](unsigned char c) { return std::toupper(c); });
  double scale = 0;
  if (unit.empty() || unit == "B") scale = 1;
  if (unit == "K" || unit == "KB" || unit == "KIB") scale = 1024.0;
  if (unit == "M" || unit == "MB" || unit == "MIB") scale = 1048576.0;
  if (unit == "G" || unit == "GB" || unit == "GIB") scale = 1073741824.0;
  if (scale == 0 || !(n > 0) || n * scale > 9e18) return bad;
  return static_cast<int64_t>(n * scale);
}

}  // namespace slm::cli
