// See read.h and docs/targets.md.
#include "targets/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/json.h"
#include "targets/json_object.h"

namespace slm::targets {
namespace {

using model::Quoted;
using nlohmann::json;
using onnx::ElementType;

constexpr int64_t kSchema = 1;

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

class DescriptionReader {
 public:
  DescriptionReader(const json& root, const std::string& place, const Lookup& lookup)
      : root_(root, place, errors_), place_(place), lookup_(lookup) {}

  Result<std::shared_ptr<const Description>> Read() {
    Head();
    Types();
    Shapes();
    Fallback();
    Rows();
    Facts();
    root_.Done();
    if (errors_.error) return *errors_.error;
    return std::shared_ptr<const Description>(std::make_shared<Description>(std::move(d_)));
  }

 private:
  std::string At(const std::string& inner) const { return place_ + ": " + inner; }

  std::shared_ptr<const Description> Named(const char* key, const std::string& name) {
    auto found = lookup_(name);
    if (found.ok()) return found.Take();
    if (!errors_.error) errors_.error = found.error().At(At(key));
    return nullptr;
  }

  void Head() {
    int64_t schema = 0;
    root_.Int("schema", &schema);
    if (schema != kSchema) root_.Wrong("schema", fmt::format("{}; this build reads {}", schema, kSchema));
    std::string base;
    root_.Text("extends", &base);
    if (!base.empty())
      if (const auto found = Named("extends", base)) d_ = *found;
    d_.name.clear();
    root_.Text("name", &d_.name);
    if (d_.name.empty() || d_.name.size() > 80) root_.Wrong("name", "none, or longer than 80 bytes");
    root_.Text("title", &d_.title);
    root_.Text("runtime", &d_.runtime);
    root_.Flag("quantized_units", &d_.quantized_units);
    root_.Flag("whole_bodies", &d_.whole_bodies);
    if (const json* sources = root_.Find("sources")) {
      const JsonObject list(*sources, At("sources"), errors_);  // says that it is no object
      if (sources->is_object())
        for (const auto& item : sources->items()) Source(item.key(), item.value());
    }
  }

  // {"measured": packages, "by": file} | {"documented": page} | {"assumed": why}; "note" with each.
  void Source(const std::string& key, const json& value) {
    JsonObject source(value, At("sources." + key), errors_);
    std::string text, by, note;
    int n = 0;
    for (const char* kind : {"measured", "documented", "assumed"}) {
      std::string words;
      source.Text(kind, &words);
      if (!words.empty()) text = std::string(kind) + ": " + words, ++n;
    }
    if (n != 1) source.Wrong("source", "needs one of measured, documented, assumed");
    source.Text("by", &by);
    source.Text("note", &note);
    if (!by.empty()) text += " (" + by + ")";
    if (!note.empty()) text += "; " + note;
    source.Done();
    d_.sources[key] = text;
  }

  // Every fact names one.
  void FactSource(JsonObject& o, std::string* out) {
    o.Text("source", out);
    if (out->empty()) o.Wrong("source", "none given; every fact has one");
    else if (!d_.sources.contains(*out)) o.Wrong("source", Quoted(*out) + " is not in \"sources\"");
  }

  TypeSet SetOf(const json& v, JsonObject& o, const std::string& where) {
    if (v.is_null()) return kAnyType;
    TypeSet set = 0;
    const json list = v.is_array() ? v : json::array({v});
    for (const json& item : list) {
      const std::string name = item.is_string() ? item.get<std::string>() : std::string();
      TypeSet one = TypeNamed(name);
      if (const auto known = d_.types.find(name); one == 0 && known != d_.types.end()) one = known->second;
      if (one == 0) o.Wrong(where, "no element type " + (item.is_string() ? Quoted(name) : "here"));
      set |= one;
    }
    return set;
  }

  void Types() {
    const json* types = root_.Find("types");
    if (!types) return;
    JsonObject list(*types, At("types"), errors_);
    if (types->is_object())
      for (const auto& item : types->items()) {
        if (TypeNamed(item.key()) != 0) list.Wrong(item.key(), "is an element type already");
        const TypeSet set = SetOf(item.value(), list, item.key());
        d_.types[item.key()] = set;
      }
  }

  void Shapes() {
    if (const json* shapes = root_.Find("shapes")) {
      JsonObject o(*shapes, At("shapes"), errors_);
      o.Flag("static_only", &d_.static_only);
      o.Int("most_rank", &d_.most_rank);
      o.Text("reason", &d_.shapes_reason);
      FactSource(o, &d_.shapes_source);
      o.Done();
    }
    if (const json* unlisted = root_.Find("unlisted")) {
      JsonObject o(*unlisted, At("unlisted"), errors_);
      o.Text("reason", &d_.unlisted_reason);
      FactSource(o, &d_.unlisted_source);
      o.Done();
    }
    if (d_.unlisted_reason.empty()) root_.Wrong("unlisted", "says no reason: what an operator without a row means");
    if (const json* widened = root_.Find("widened")) {
      JsonObject o(*widened, At("widened"), errors_);
      std::string from, to;
      o.Text("from", &from);
      o.Text("to", &to);
      if (TypeNamed(from) == 0 || TypeNamed(to) == 0) o.Wrong("from, to", "not two element types");
      d_.widened.assign(1, {TypeNamed(from), TypeNamed(to)});
      FactSource(o, &d_.widened_source);
      o.Done();
    }
  }

  void Fallback() {
    const json* fallback = root_.Find("fallback");
    if (!fallback) return;
    d_.fallback = nullptr;
    d_.fallback_lacks.clear();
    if (fallback->is_null()) return;
    JsonObject o(*fallback, At("fallback"), errors_);
    std::string target;
    o.Text("target", &target);
    d_.fallback = Named("fallback", target);
    for (const std::string& op : o.Texts("lacks")) {
      const size_t dot = op.rfind('.');
      if (dot == std::string::npos) d_.fallback_lacks.emplace_back("", op);
      else d_.fallback_lacks.emplace_back(op.substr(0, dot), op.substr(dot + 1));
    }
    FactSource(o, &d_.fallback_source);
    o.Done();
  }

  // "in": one set for all; "in_each": one a position, null for any type.
  TypeList ListOf(JsonObject& o, const char* all, const char* each) {
    TypeList out;
    if (const json* v = o.Find(all)) out.rest = SetOf(*v, o, all);
    const json* v = o.Find(each);
    if (v && !v->is_array()) o.Wrong(each, "not a list");
    if (v && v->is_array())
      for (size_t i = 0; i < v->size(); ++i) out.at.push_back(SetOf((*v)[i], o, fmt::format("{}[{}]", each, i)));
    return out;
  }

  void AttributesOf(JsonObject& o, Row& row) {
    const json* with = o.Find("with");
    if (!with) return;
    JsonObject rules(*with, o.place() + ": with", errors_);
    if (!with->is_object()) return;
    for (const auto& item : with->items()) {
      AttributeRule rule;
      rule.name = item.key();
      const json list = item.value().is_array() ? item.value() : json::array({item.value()});
      for (const json& v : list) {
        if (v.is_null()) rule.absent = true;
        else if (JsonObject::IsInt(v)) rule.ints.push_back(v.get<int64_t>());
        else if (v.is_string() && v.get<std::string>() == "last") rule.last_axis = true;
        else if (v.is_string()) rule.texts.push_back(v.get<std::string>());
        else rules.Wrong(item.key(), "not whole numbers, texts or null");
      }
      row.attributes.push_back(std::move(rule));
    }
  }

  void ReadRow(const json& v, const std::string& place) {
    JsonObject o(v, place, errors_);
    Row row;
    std::string domain;
    const std::vector<std::string> ops = o.Texts("op");
    if (ops.empty()) o.Wrong("op", "none given");
    o.Text("domain", &domain);
    o.Range("opset", &row.first_opset, &row.last_opset);
    row.in = ListOf(o, "in", "in_each");
    row.out = ListOf(o, "out", "out_each");
    o.Range("rank", &row.least_rank, &row.most_rank);
    row.constant = o.Indices("constant");
    row.variable = o.Indices("variable");
    row.blocked = o.Indices("blocked");
    row.absent = o.Indices("absent");
    row.readers = o.Texts("read_by");
    AttributesOf(o, row);
    o.Flag("border", &row.border);
    o.Flag("inside", &row.inside);
    o.Flag("native", &row.native);
    o.Text("kernel", &row.kernel);
    o.Text("reason", &row.reason);
    o.Text("replacement", &row.replacement);
    o.Text("applied_by", &row.applied_by);
    o.Text("warning", &row.warning);
    FactSource(o, &row.source);
    if (!row.native && row.reason.empty()) o.Wrong("reason", "none given for a row that refuses");
    o.Done();
    for (const std::string& op : ops) own_[{domain, op}].push_back(row);
  }

  // Rows of this file come before those that it inherits.
  void Rows() {
    const json* rows = root_.Find("operators");
    if (!rows) return;
    if (!rows->is_array()) return root_.Wrong("operators", "not a list");
    for (size_t i = 0; i < rows->size(); ++i) {
      const json& v = (*rows)[i];
      const json* op = v.is_object() && v.contains("op") ? &v["op"] : nullptr;
      const std::string name = op && op->is_string()                                             ? op->get<std::string>()
                               : op && op->is_array() && !op->empty() && op->front().is_string() ? op->front().get<std::string>()
                                                                                                 : std::string();
      ReadRow(v, At(fmt::format("operators[{}]{}", i, name.empty() ? "" : " (" + model::PrintableUtf8(name, 60) + ")")));
    }
    for (auto& [key, list] : own_) {
      std::vector<Row>& all = d_.rows[key];
      list.insert(list.end(), all.begin(), all.end());
      all = std::move(list);
    }
  }

  template <class F>
  void Each(const char* key, F&& read) {
    const json* list = root_.Find(key);
    if (!list) return;
    if (!list->is_array()) return root_.Wrong(key, "not a list");
    for (size_t i = 0; i < list->size(); ++i) {
      JsonObject o((*list)[i], At(fmt::format("{}[{}]", key, i)), errors_);
      read(o);
      o.Done();
    }
  }

  void Facts() {
    Each("fused", [&](JsonObject& o) {
      FusedForm f;
      o.Text("what", &f.what);
      o.Text("kernel", &f.kernel);
      FactSource(o, &f.source);
      d_.fused.push_back(std::move(f));
    });
    for (const auto& [key, out] : {std::pair{"weights", &d_.weights}, std::pair{"activations", &d_.activations}})
      Each(key, [&, list = out](JsonObject& o) {
        Scheme s;
        o.Text("scheme", &s.name);
        o.Text("note", &s.note);
        FactSource(o, &s.source);
        list->push_back(std::move(s));
      });
    Each("limits", [&](JsonObject& o) {
      static constexpr std::array kKinds = {"weights_bytes", "kv_bytes", "weights_and_kv_bytes", "tensor_bytes"};
      Limit l;
      o.Text("what", &l.what);
      if (std::find(kKinds.begin(), kKinds.end(), l.what) == kKinds.end()) o.Wrong("what", "no limit of that name");
      o.Int("most", &l.most);
      if (l.most <= 0) o.Wrong("most", "not above 0");
      o.Text("note", &l.note);
      FactSource(o, &l.source);
      d_.bounds.push_back(std::move(l));
    });
  }

  FirstError errors_;
  JsonObject root_;
  const std::string& place_;
  const Lookup& lookup_;
  Description d_;
  std::map<std::pair<std::string, std::string>, std::vector<Row>> own_;
};

}  // namespace

TypeSet TypeNamed(std::string_view name) {
  const bool quantized = name.starts_with("q.");
  if (quantized) name.remove_prefix(2);
  for (size_t i = 1; i < onnx::kElementTable.size(); ++i)
    if (Lower(onnx::kElementTable[i].name) == name)
      return quantized ? Quantized(static_cast<ElementType>(i)) : Plain(static_cast<ElementType>(i));
  return 0;
}

std::string TypeNames(TypeSet set) {
  std::string out;
  for (const bool quantized : {false, true})
    for (size_t i = 1; i < onnx::kElementTable.size(); ++i) {
      const ElementType t = static_cast<ElementType>(i);
      if ((set & (quantized ? Quantized(t) : Plain(t))) == 0) continue;
      out += (out.empty() ? "" : ", ") + std::string(quantized ? "q." : "") + Lower(onnx::Info(t).name);
    }
  return out;
}

Result<std::shared_ptr<const Description>> ReadDescription(std::string_view text, const std::string& place, const Lookup& lookup) {
  auto root = model::ParseJson(text, {.bytes = size_t{4} << 20, .depth = 16});
  if (!root.ok()) return Error(root.error().code(), place + ": " + root.error().message(), "docs/targets.md describes the schema");
  return DescriptionReader(root.value(), place, lookup).Read();
}

}  // namespace slm::targets
