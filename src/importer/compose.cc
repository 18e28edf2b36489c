// See compose.h. Each stage keeps its names behind its own; what it takes and gives goes through an Identity, so that no two names of a
// stage become one.
#include "importer/compose.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "importer/decoder.h"
#include "importer/flatten.h"
#include "model/quoted.h"

namespace slm::importer {
namespace {

using model::Quoted;

constexpr size_t kMostNodes = size_t{1} << 17;   // as of one graph
constexpr size_t kSmallBytes = size_t{1} << 16;  // of tensors that are looked up by what they hold

Error Corrupt(std::string message) {
  return Error(Code::kCorrupt, std::move(message),
               "genai_config.json and its graphs do not fit each other: export or fetch the folder again");
}
Error Unsupported(std::string message, const char* hint) { return Error(Code::kUnsupported, std::move(message), hint); }

bool IsInput(const onnx::GenAiNames& n, const std::string& name) {
  return name == n.input_ids || name == n.attention_mask || name == n.position_ids || name == n.last_slot || name == n.total ||
         NumberIn(name, n.past_key) >= 0 || NumberIn(name, n.past_value) >= 0;
}
bool IsOutput(const onnx::GenAiNames& n, const std::string& name) {
  return name == n.logits || NumberIn(name, n.present_key) >= 0 || NumberIn(name, n.present_value) >= 0;
}

const onnx::ValueInfo* Find(const std::vector<onnx::ValueInfo>& values, const std::string& name) {
  for (const onnx::ValueInfo& v : values)
    if (v.name == name) return &v;
  return nullptr;
}

// Puts `prefix` before every name of a graph.
void Rename(onnx::Graph& g, const std::string& prefix);
void Rename(std::vector<onnx::Node>& nodes, const std::string& prefix) {
  for (onnx::Node& n : nodes) {
    if (!n.name.empty()) n.name.insert(0, prefix);
    for (auto* names : {&n.inputs, &n.outputs})
      for (std::string& name : *names)
        if (!name.empty()) name.insert(0, prefix);
    for (onnx::Attribute& a : n.attributes)
      for (onnx::Graph& g : a.graphs) Rename(g, prefix);
  }
}
void Rename(onnx::Graph& g, const std::string& prefix) {
  for (auto* values : {&g.inputs, &g.outputs, &g.value_infos})
    for (onnx::ValueInfo& v : *values) v.name.insert(0, prefix);
  for (onnx::Tensor& t : g.initializers) t.name.insert(0, prefix);
  Rename(g.nodes, prefix);
}

class Composer {
 public:
  Composer(const std::vector<StageGraph>& stages, const onnx::GenAiNames& names) : stages_(stages), names_(names) {
    out_.model = std::make_shared<onnx::Model>();
  }

  Result<Composed> Run() {
    std::set<std::string> files;
    for (size_t i = 0; i < stages_.size(); ++i) {
      const onnx::GenAiStage& s = stages_[i].stage;
      if (!files.insert(s.file).second) return Unsupported("two stages run the file " + Quoted(s.file), "run it with ONNX Runtime GenAI");
      if (const Status status = Add(i); !status.ok()) return status.error().At(fmt::format("stage {} ({})", Quoted(s.name), s.file));
    }
    out_.model->storage = std::make_shared<std::vector<std::shared_ptr<const onnx::Model>>>(std::move(kept_));
    return std::move(out_);
  }

 private:
  Status Add(size_t i) {
    const StageGraph& part = stages_[i];
    SLM_RETURN_IF_ERROR(RefuseCompiled(*part.model));
    SLM_ASSIGN_OR_RETURN(const std::shared_ptr<onnx::Model> flat, Flatten(part.model));
    if (!flat->graph.sparse_initializers.empty()) return Unsupported("sparse weights", "export the model in another form");
    n_nodes_ += flat->graph.nodes.size();
    if (n_nodes_ > kMostNodes)
      return Error(Code::kLimit, fmt::format("more than {} nodes in all stages", kMostNodes), "use a smaller model");
    SLM_RETURN_IF_ERROR(Import(*flat));
    SLM_RETURN_IF_ERROR(FormOf(part.stage, flat->graph));
    const std::string prefix = model::PrintableUtf8(part.stage.name, 80) + "/";
    onnx::Graph& to = out_.model->graph;
    SLM_RETURN_IF_ERROR(Inputs(i, prefix, flat->graph));
    SLM_RETURN_IF_ERROR(Outputs(part.stage, flat->graph));
    SameBytes(*part.model, flat->graph.initializers);
    Rename(flat->graph, prefix);
    std::move(flat->graph.nodes.begin(), flat->graph.nodes.end(), std::back_inserter(to.nodes));
    std::move(flat->graph.initializers.begin(), flat->graph.initializers.end(), std::back_inserter(to.initializers));
    for (const std::string& name : part.stage.outputs) {
      if (IsOutput(names_, name)) Connect(prefix + name, name);
      else known_[KnownAs(part.stage, name)] = prefix + name;
    }
    Keep(*part.model, flat);
    return CheckNames(to);
  }

  // Every name is made once, although names of stages may hold what divides them from names of values.
  Status CheckNames(const onnx::Graph& g) {
    const auto add = [&](const std::string& name) -> Status {
      return name.empty() || all_.insert(name).second ? Ok() : Corrupt("two values are called " + Quoted(name));
    };
    for (; n_checked_tensors_ < g.initializers.size(); ++n_checked_tensors_)
      SLM_RETURN_IF_ERROR(add(g.initializers[n_checked_tensors_].name));
    for (; n_checked_nodes_ < g.nodes.size(); ++n_checked_nodes_)
      for (const std::string& name : g.nodes[n_checked_nodes_].outputs) SLM_RETURN_IF_ERROR(add(name));
    return Ok();
  }

  void Connect(const std::string& from, const std::string& to) {
    onnx::Node n;
    n.name = to, n.op_type = "Identity";
    n.inputs = {from}, n.outputs = {to};
    out_.model->graph.nodes.push_back(std::move(n));
  }

  // Other versions of an operator set may give its operators another meaning.
  Status Import(const onnx::Model& m) {
    for (const onnx::Opset& o : m.opsets) {
      const auto uses = [&](const onnx::Node& n) { return n.domain == o.domain; };
      if (!std::any_of(m.graph.nodes.begin(), m.graph.nodes.end(), uses)) continue;
      const int64_t version = onnx::OpsetVersion(out_.model->opsets, o.domain);
      if (version == 0) out_.model->opsets.push_back(o);
      else if (version != o.version)
        return Unsupported(fmt::format("operator set {} {} behind stages of {}", Quoted(o.domain), o.version, version),
                           "export all stages with one operator set");
    }
    return Ok();
  }

  // A graph with a cache says how many tokens it is for.
  Status FormOf(const onnx::GenAiStage& s, const onnx::Graph& g) {
    const auto holds_cache = [&](const onnx::ValueInfo& v) { return NumberIn(v.name, names_.past_key) >= 0; };
    if (std::none_of(g.inputs.begin(), g.inputs.end(), holds_cache)) return Ok();
    for (const std::string& name : s.inputs) {
      const onnx::ValueInfo* v = Find(g.inputs, name);
      const bool by_token = name == names_.input_ids || name == names_.position_ids || !IsInput(names_, name);
      if (!v || !by_token) continue;
      const auto& shape = v->type.shape;
      const int64_t tokens = shape.size() == 2 || shape.size() == 3 ? shape[1].value : -1;
      if (tokens > 1 || tokens == 0)
        return Unsupported(
            fmt::format("its input {} is for {} tokens; graphs for one token, or for any number, are taken", Quoted(name), tokens),
            "name a folder whose stages of token generation take one token");
      if (tokens == 1) out_.form = CallForm::kOneToken;
    }
    return Ok();
  }

  Status Inputs(size_t at, const std::string& prefix, const onnx::Graph& g) {
    const onnx::GenAiStage& s = stages_[at].stage;
    std::set<std::string> defaults;
    for (const onnx::Tensor& t : g.initializers) defaults.insert(t.name);
    for (const std::string& name : s.inputs)
      if (!Find(g.inputs, name)) return Corrupt("the graph has no input " + Quoted(name));
    for (const onnx::ValueInfo& v : g.inputs) {
      if (std::find(s.inputs.begin(), s.inputs.end(), v.name) == s.inputs.end()) {
        if (!defaults.contains(v.name)) return Corrupt("the graph's input " + Quoted(v.name) + " is not among the stage's");
        continue;
      }
      if (const auto known = known_.find(v.name); known != known_.end() && !IsInput(names_, v.name)) {
        Connect(known->second, prefix + v.name);
      } else if (IsInput(names_, v.name)) {
        SLM_RETURN_IF_ERROR(DecoderInput(v));
        Connect(v.name, prefix + v.name);
      } else if (const std::string later = MadeLater(at, v.name); !later.empty()) {
        return Unsupported(
            fmt::format("its input {} is made by stage {}, which does not run before it: a cycle, or a value of the call before",
                        Quoted(v.name), Quoted(later)),
            "run it with ONNX Runtime GenAI");
      } else if (!defaults.contains(v.name)) {
        return Corrupt("its input " + Quoted(v.name) + " is made by no stage, and is none of a decoder's");
      }
      if (defaults.contains(v.name) && (IsInput(names_, v.name) || known_.contains(v.name)))
        return Unsupported("its input " + Quoted(v.name) + " has a value of its own besides", "export the model in another form");
    }
    return Ok();
  }

  // An input of the decoder, which several stages may take.
  Status DecoderInput(const onnx::ValueInfo& v) {
    onnx::Graph& to = out_.model->graph;
    const onnx::ValueInfo* known = Find(to.inputs, v.name);
    if (!known) {
      to.inputs.push_back(v);
      return Ok();
    }
    if (known->type.element != v.type.element) return Corrupt("its input " + Quoted(v.name) + " is of another type in an earlier stage");
    return Ok();
  }

  // The name under which other stages find an output.
  static std::string KnownAs(const onnx::GenAiStage& s, const std::string& output) {
    const auto forwarded = s.forwarded.find(output);
    return forwarded == s.forwarded.end() ? output : forwarded->second;
  }

  Status Outputs(const onnx::GenAiStage& s, const onnx::Graph& g) {
    onnx::Graph& to = out_.model->graph;
    for (const std::string& name : s.outputs) {
      if (!Find(g.outputs, name)) return Corrupt("the graph has no output " + Quoted(name));
      if (IsInput(names_, name) || IsInput(names_, KnownAs(s, name)))
        return Unsupported("its output " + Quoted(name) + " is called as an input of the decoder", "export it otherwise");
      if (std::find(s.inputs.begin(), s.inputs.end(), name) != s.inputs.end())
        return Corrupt("an input and an output are called " + Quoted(name) + ": the runtime forgets it before the stage runs");
      if (!IsOutput(names_, name)) continue;
      if (Find(to.outputs, name)) return Corrupt("output " + Quoted(name) + " is made by an earlier stage, too");
      to.outputs.push_back(*Find(g.outputs, name));
    }
    return Ok();
  }

  // The stage from `at` on that makes `name`; empty: none.
  std::string MadeLater(size_t at, const std::string& name) const {
    for (size_t i = at; i < stages_.size(); ++i) {
      const onnx::GenAiStage& s = stages_[i].stage;
      for (const std::string& output : s.outputs)
        if (KnownAs(s, output) == name) return s.name;
    }
    return {};
  }

  // Stages may name the same places of a file of weights, which each has mapped for itself: then all get those of the first. Small tensors
  // that stand in the messages are compared: a head that shares its embedding's codes has their scales there.
  void SameBytes(const onnx::Model& m, std::vector<onnx::Tensor>& tensors) {
    std::map<int, const std::byte*> moved;  // by file of `m`
    for (size_t k = 0; k < m.external_files.size() && k < m.maps.size(); ++k) {
      const auto [at, is_new] = mapped_.emplace(m.external_files[k].name, m.maps[k].bytes());
      if (!is_new && at->second.size() == m.maps[k].bytes().size()) moved[static_cast<int>(k)] = at->second.data();
    }
    for (onnx::Tensor& t : tensors) {
      if (t.external_file < 0 && !t.data.empty() && t.data.size() <= kSmallBytes) {
        const std::string_view bytes(reinterpret_cast<const char*>(t.data.data()), t.data.size());
        t.data = std::as_bytes(std::span<const char>(*small_.insert(bytes).first));
      }
      const auto to = moved.find(t.external_file);
      if (to == moved.end()) continue;
      const auto offset = t.data.data() - m.maps[static_cast<size_t>(t.external_file)].bytes().data();
      t.data = {to->second + offset, t.data.size()};
    }
  }

  void Keep(onnx::Model& m, std::shared_ptr<const onnx::Model> flat) {
    out_.model->file_bytes += m.file_bytes;
    for (const onnx::ExternalFile& f : m.external_files)
      if (files_.insert(f.name).second) out_.model->external_files.push_back(f);
    std::move(m.maps.begin(), m.maps.end(), std::back_inserter(out_.model->maps));
    m.maps.clear();
    if (out_.model->producer_name.empty()) out_.model->producer_name = m.producer_name;
    kept_.push_back(std::move(flat));
  }

  const std::vector<StageGraph>& stages_;
  const onnx::GenAiNames& names_;
  Composed out_;
  std::map<std::string, std::string> known_;  // what a value that is passed on is called in the graph
  std::map<std::string, std::span<const std::byte>> mapped_;
  std::set<std::string_view> small_;
  std::set<std::string> files_, all_;
  size_t n_nodes_ = 0, n_checked_nodes_ = 0, n_checked_tensors_ = 0;
  std::vector<std::shared_ptr<const onnx::Model>> kept_;
};

}  // namespace

Status RefuseCompiled(const onnx::Model& m) {
  const auto is_compiled = [](const onnx::Node& n) { return n.op_type == "EPContext"; };
  const auto n = std::find_if(m.graph.nodes.begin(), m.graph.nodes.end(), is_compiled);
  if (n == m.graph.nodes.end()) return Ok();
  const onnx::Attribute* source = n->Find("source");
  const std::string whose = source && source->strings.size() == 1 ? " by " + Quoted(source->strings[0]) : "";
  return Unsupported(
      fmt::format("node {} (EPContext) is a graph compiled{} for a device, which own kernels cannot read", Quoted(n->name), whose),
      "name the folder before it was compiled, or run it with ONNX Runtime and that provider (--device)");
}

Result<Composed> Compose(const std::vector<StageGraph>& stages, const onnx::GenAiNames& names) { return Composer(stages, names).Run(); }

}  // namespace slm::importer
