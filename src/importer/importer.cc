// See importer.h: which file of a folder is the decoder, what the small files beside it say, and the graph for a context.
#include "importer/importer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "importer/compose.h"
#include "importer/decoder.h"
#include "importer/static_decoder.h"
#include "model/hf/folder.h"
#include "model/hf/keys.h"
#include "model/json.h"
#include "model/quoted.h"
#include "onnx/genai/genai.h"
#include "onnx/static_folder/static_folder.h"

namespace slm::importer {
namespace {

namespace fs = std::filesystem;
using model::Model;
using model::hf::Keys;
using reference::Array;

constexpr int kMostContext = 1 << 17;  // whose longest call is still probed
constexpr int kUsualContext = 4096;    // where nothing says it

// What lies beside the graph.
struct Source {
  std::string folder, file;  // no file: a pipeline, or graphs of fixed shapes
  std::string format = "onnx", type, name;
  int context = 0;
  std::vector<int32_t> bos, eos;
  std::vector<onnx::GenAiStage> stages;  // of a pipeline
  std::optional<onnx::StaticFolder> fixed;
  Stated stated;
};

bool Exists(const fs::path& p) {
  std::error_code ec;
  return fs::exists(p, ec);
}

bool HasSafetensors(const fs::path& folder) {
  return Exists(folder / "model.safetensors") || Exists(folder / "model.safetensors.index.json");
}

// The graph of a folder without a GenAI config; empty: there is none.
std::string PlainGraph(const fs::path& folder) {
  for (const char* name : {"model.onnx", "onnx/model.onnx"})
    if (Exists(folder / name)) return (folder / name).string();
  return {};
}

Status ReadGenAi(Source* s) {
  SLM_ASSIGN_OR_RETURN(const onnx::GenAiConfig c, onnx::ReadGenAiConfig(s->folder));
  std::string stages;
  for (const onnx::GenAiFile& f : c.files) stages += (stages.empty() ? "" : ", ") + model::Quoted(f.name);
  const bool pipeline = s->file.empty() && onnx::OnlyPipeline(c);
  if (!onnx::OnlyDecoder(c) && !pipeline && s->file.empty())
    return Error(Code::kUnsupported,
                 fmt::format("{}: genai_config.json: a model of several graphs ({}); one decoder graph, or a pipeline of stages, is run",
                             s->folder, stages),
                 "export the model as one graph, for the CPU");
  if (pipeline && c.slides_cache)
    return Error(Code::kUnsupported, s->folder + ": genai_config.json: a cache that forgets (\"slide_key_value_cache\")",
                 "run it with ONNX Runtime GenAI");
  s->format = "genai";
  s->type = c.type;
  s->context = c.context_length;
  s->bos.assign(c.bos_ids.begin(), c.bos_ids.end());
  s->eos.assign(c.eos_ids.begin(), c.eos_ids.end());
  if (pipeline)
    for (const onnx::GenAiStage& stage : c.stages)
      if (stage.on_token) s->stages.push_back(stage);  // they take prompts, too
  if (pipeline && s->stages.empty())
    return Error(Code::kUnsupported, s->folder + ": genai_config.json: no stage runs for single tokens (\"run_on_token_gen\")",
                 "name a folder that generates text");
  if (s->file.empty() && !pipeline) s->file = (fs::path(s->folder) / c.files[0].name).string();
  s->stated.naming = c.names;
  s->stated.n_kv_heads = c.n_kv_heads, s->stated.head_dim = c.head_dim;
  return Ok();
}

Status ReadStatic(Source* s) {
  SLM_ASSIGN_OR_RETURN(s->fixed, onnx::ReadStaticFolder(s->folder));
  const onnx::StaticManifest& m = s->fixed->manifest;
  s->format = "static";
  s->type = m.architecture;
  s->context = m.context;
  s->bos = m.bos_ids, s->eos = m.eos_ids;
  s->stated.naming.logits = m.logits;
  return Ok();
}

// config.json of an exported model: its context and name. The graph says the rest.
Status ReadConfig(Source* s) {
  SLM_ASSIGN_OR_RETURN(const model::hf::Folder folder, model::hf::Folder::Open(s->folder));
  auto text = folder.Text("config.json", model::JsonLimits{}.bytes);
  if (!text.ok()) return text.error().At(s->folder);
  if (text.value().empty()) return Ok();
  const auto read = [&]() -> Status {
    SLM_ASSIGN_OR_RETURN(const nlohmann::json root, model::ParseJson(text.value()));
    SLM_ASSIGN_OR_RETURN(const nlohmann::json* inner, Keys(root).Object("text_config"));
    const Keys keys(inner ? *inner : root);
    SLM_RETURN_IF_ERROR(keys.Int("max_position_embeddings", &s->context));
    SLM_RETURN_IF_ERROR(Keys(root).Text("_name_or_path", &s->name));
    int heads = 0, kv_heads = 0, width = 0, hidden = 0;
    for (const auto& [key, out] : {std::pair<const char*, int*>{"num_attention_heads", &heads},
                                   {"num_key_value_heads", &kv_heads},
                                   {"head_dim", &width},
                                   {"hidden_size", &hidden}})
      SLM_RETURN_IF_ERROR(keys.Int(key, out));
    s->stated.n_kv_heads = kv_heads > 0 ? kv_heads : heads;
    s->stated.head_dim = width > 0 ? width : heads > 0 ? hidden / heads : 0;
    return keys.Text("model_type", &s->type);
  };
  if (const Status status = read(); !status.ok()) return status.error().At(s->folder + ": config.json");
  return Ok();
}

Result<Source> Find(const std::string& path) {
  Source s;
  std::error_code ec;
  if (fs::is_directory(path, ec)) {
    s.folder = path;
  } else {
    s.file = path;
    s.folder = fs::path(path).parent_path().string();
    if (s.folder.empty()) s.folder = ".";
    if (fs::path(s.folder).filename() == "onnx" && !Exists(fs::path(s.folder) / "config.json"))
      s.folder = (fs::path(s.folder) / "..").string();
  }
  if (s.file.empty() && onnx::IsStaticFolder(s.folder)) {
    SLM_RETURN_IF_ERROR(ReadStatic(&s));
    return s;
  }
  if (onnx::IsGenAiFolder(s.folder)) SLM_RETURN_IF_ERROR(ReadGenAi(&s));
  else SLM_RETURN_IF_ERROR(ReadConfig(&s));
  if (!s.stages.empty()) return s;
  if (s.file.empty()) s.file = PlainGraph(s.folder);
  if (s.file.empty()) return Error(Code::kNotFound, path + ": no model.onnx", "name a complete model folder");
  return s;
}

// The tokenizer's files are those of a Hugging Face folder; without them only token ids can be run.
Status AddTokenizer(const Source& s, Model* m) {
  auto found = model::LoadModel(s.folder, model::LoadWhat::kTokenizerOnly);
  if (!found.ok()) return found.error().code() == Code::kNotFound ? Ok() : Status(found.error());
  Model& t = *found.value();
  m->tokenizer = std::move(t.tokenizer);
  m->config.bos_ids = s.bos.empty() ? t.config.bos_ids : s.bos;
  m->config.eos_ids = s.eos.empty() ? t.config.eos_ids : s.eos;
  return Ok();
}

void FillConfig(const Source& s, const Facts& f, model::ModelConfig* c) {
  c->architecture = model::PrintableUtf8(s.type.empty() ? "onnx" : s.type, 80);
  c->name = model::PrintableUtf8(s.name, 200);
  c->vocab_size = f.vocab_size, c->d_model = f.d_model, c->n_layers = f.n_layers;
  c->n_heads = f.n_heads, c->n_kv_heads = f.n_kv_heads, c->head_dim = f.head_dim, c->d_ff = f.d_ff;
  c->rope.rotary_dim = f.rotary_dim, c->rope.interleaved = f.interleaved;
  c->sliding_window = f.window;
  c->is_local = f.is_local;
  c->rope_local = c->rope;
  c->tied_head = f.tied_head;
  int64_t context = s.context > 0 ? s.context : f.most_positions > 0 ? f.most_positions : kUsualContext;
  if (f.most_positions > 0) context = std::min(context, f.most_positions);
  c->max_context = static_cast<int>(std::min<int64_t>(context, kMostContext));
}

// The tensors move into the model; constants point at them there.
void MoveTensors(Weights& weights, Model* m, graph::Graph* g) {
  std::deque<model::Tensor> tensors = weights.Take();
  std::map<const model::Tensor*, size_t> index;
  for (const model::Tensor& t : tensors) index.emplace(&t, index.size());
  m->tensors.assign(std::make_move_iterator(tensors.begin()), std::make_move_iterator(tensors.end()));
  for (graph::Value& v : g->values) {
    if (!v.constant || v.constant->parts.empty()) continue;
    auto moved = std::make_shared<graph::Constant>(*v.constant);
    for (graph::ConstantPart& p : moved->parts) p.tensor = &m->tensors[index.at(p.tensor)];
    v.constant = std::move(moved);
  }
}

// The graph, and what calls it is for.
Result<Composed> ReadGraph(const Source& s) {
  std::vector<StageGraph> stages;
  if (s.fixed) {
    SLM_ASSIGN_OR_RETURN(stages, StagesOf(*s.fixed));
  }
  for (const onnx::GenAiStage& stage : s.stages) {
    SLM_ASSIGN_OR_RETURN(onnx::Model m, onnx::ReadModel((fs::path(s.folder) / stage.file).string()));
    stages.push_back({stage, std::make_shared<onnx::Model>(std::move(m))});
  }
  if (stages.empty()) {
    SLM_ASSIGN_OR_RETURN(onnx::Model m, onnx::ReadModel(s.file));
    if (const Status status = RefuseCompiled(m); !status.ok()) return status.error().At(s.file);
    return Composed{std::make_shared<onnx::Model>(std::move(m)), CallForm::kAnyLength};
  }
  auto composed = Compose(stages, s.stated.naming);
  if (!composed.ok()) return composed.error().At(s.folder);
  if (s.fixed) composed.value().form = CallForm::kOneToken;
  return composed;
}

// A model with what its tensors point into.
struct Held {
  Model model;
  std::shared_ptr<const void> file, bytes;
};

// One side of a rotation as rows [context, half]. The values of short calls must be the same: rows that change with the length of the
// call are no table.
Result<std::vector<float>> RowsOf(const Decoder& d, const std::string& value, const RopeTable& table, int context, Work& work) {
  const int64_t half = table.half, columns = table.columns;
  SLM_ASSIGN_OR_RETURN(const Array all, d.calls.Evaluate(value, {0, context}, d.values, work));
  if (all.size() != context * columns)
    return Error(Code::kUnsupported, "value '" + value + "' is no table of rotations", "run the model with ONNX Runtime");
  std::vector<float> rows;
  for (int64_t p = 0; p < context; ++p)
    for (int64_t i = 0; i < half; ++i) rows.push_back(static_cast<float>(NumberAt(all, p * columns + i)));
  const auto& probes = d.calls.probes();
  for (size_t k = 0; k < probes.size(); ++k)
    for (int64_t t = 0; t < probes[k].tokens && probes[k].past + t < context; ++t)
      for (int64_t i = 0; i < half; ++i)
        if (static_cast<float>(NumberAt(d.values.at(value)->at[k], t * columns + i)) !=
            rows[static_cast<size_t>((probes[k].past + t) * half + i)])
          return Error(Code::kUnsupported, "value '" + value + "': rotations that change with the length of the call",
                       "use a smaller --ctx");
  return rows;
}

}  // namespace

bool IsOnnxModel(const std::string& path) {
  if (path.ends_with(".onnx")) return true;
  std::error_code ec;
  if (!fs::is_directory(path, ec) || HasSafetensors(path)) return false;
  return onnx::IsGenAiFolder(path) || onnx::IsStaticFolder(path) || !PlainGraph(path).empty();
}

Result<std::string> GraphFile(const std::string& path) {
  if (path.ends_with(".onnx")) return path;
  SLM_ASSIGN_OR_RETURN(Source s, Find(path));
  if (s.file.empty()) return Error(Code::kUnsupported, path + ": a model of several graphs", "name one of its .onnx files");
  return std::move(s.file);
}

Result<ImportedModel> Import(const std::string& path) {
  SLM_ASSIGN_OR_RETURN(Source s, Find(path));
  SLM_ASSIGN_OR_RETURN(const Composed composed, ReadGraph(s));
  const std::shared_ptr<onnx::Model>& file = composed.model;
  s.stated.form = composed.form;
  auto held = std::make_shared<Held>();
  held->file = file;
  const std::shared_ptr<Model> m(held, &held->model);
  m->path = path;
  m->format = s.format;
  m->files = std::move(file->maps);
  m->file_bytes = file->file_bytes;
  for (const onnx::ExternalFile& f : file->external_files) m->file_bytes += f.bytes;
  s.stated.longest = std::clamp(s.context > 0 ? s.context : kUsualContext, 1, kMostContext);
  auto interpreted = InterpretDecoder(file, s.stated);
  if (!interpreted.ok()) return interpreted.error().At(s.file.empty() ? s.folder : s.file);
  Interpreted i = interpreted.Take();
  FillConfig(s, i.facts, &m->config);
  SLM_RETURN_IF_ERROR(AddTokenizer(s, m.get()));
  m->metadata.emplace_back("producer", model::PrintableUtf8(file->producer_name, 200));
  MoveTensors(i.weights, m.get(), &i.decoder.graph);
  held->bytes = i.weights.bytes();
  ImportedModel out;
  out.model = m;
  out.decoder = std::make_shared<const Decoder>(std::move(i.decoder));
  return out;
}

Result<graph::Graph> BuildGraph(const ImportedModel& m, int max_context) {
  const Decoder& d = *m.decoder;
  if (max_context < 1 || max_context > m.model->config.max_context)
    return Error(Code::kInvalidArgument, fmt::format("context of {} tokens", max_context),
                 fmt::format("give 1 to {}", m.model->config.max_context));
  graph::Graph g = d.graph;
  g.model = m.model;
  Work work{.most = int64_t{1} << 32};  // four tables of 131072 positions and 256 columns take a quarter
  for (const RopeTable& t : d.tables)
    for (const bool is_cos : {true, false}) {
      const std::vector<float>& in_file = is_cos ? t.cos_rows : t.sin_rows;
      auto constant = std::make_shared<graph::Constant>();
      if (!in_file.empty()) {
        constant->data.assign(in_file.begin(), in_file.begin() + static_cast<std::ptrdiff_t>(max_context * t.half));
      } else {
        auto rows = RowsOf(d, is_cos ? t.cos_value : t.sin_value, t, max_context, work);
        if (!rows.ok()) return rows.error().At(m.model->path);
        constant->data = rows.Take();
      }
      graph::Value& v = g.values[static_cast<size_t>(is_cos ? t.cos : t.sin)];
      v.shape = {max_context, t.half};
      v.constant = std::move(constant);
    }
  SLM_RETURN_IF_ERROR(graph::Verify(g));
  return g;
}

}  // namespace slm::importer
