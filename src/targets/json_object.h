// A JSON object read key by key; what nobody asked for is an error. The first error is kept, later calls do nothing, so that a reader
// is a list of keys and not a ladder of checks.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/quoted.h"

namespace slm::targets {

struct FirstError {
  std::optional<Error> error;
  void Set(const std::string& place, const std::string& what) {
    if (!error) error = Error(Code::kCorrupt, place + ": " + what, "docs/targets.md describes the schema");
  }
};

class JsonObject {
 public:
  JsonObject(const nlohmann::json& j, std::string place, FirstError& errors) : j_(j), place_(std::move(place)), errors_(errors) {
    if (!j.is_object()) errors.Set(place_, "not an object");
  }

  const nlohmann::json* Find(const char* key) {
    asked_.insert(key);
    if (!j_.is_object()) return nullptr;
    const auto at = j_.find(key);
    return at == j_.end() ? nullptr : &*at;
  }
  bool Has(const char* key) { return Find(key) != nullptr; }
  void Text(const char* key, std::string* out) {
    const nlohmann::json* v = Find(key);
    if (v && !v->is_string()) return Wrong(key, "not a string");
    if (v) *out = v->get<std::string>();
  }
  void Flag(const char* key, bool* out) {
    const nlohmann::json* v = Find(key);
    if (v && !v->is_boolean()) return Wrong(key, "not true or false");
    if (v) *out = v->get<bool>();
  }
  void Int(const char* key, int64_t* out) {
    if (const nlohmann::json* v = Find(key)) {
      if (!IsInt(*v)) return Wrong(key, "not a whole number that fits");
      *out = v->get<int64_t>();
    }
  }
  // A string, or a list of strings.
  std::vector<std::string> Texts(const char* key) {
    std::vector<std::string> out;
    const nlohmann::json* v = Find(key);
    if (!v) return out;
    const nlohmann::json list = v->is_array() ? *v : nlohmann::json::array({*v});
    for (const nlohmann::json& item : list) {
      if (!item.is_string()) Wrong(key, "not a string or a list of strings");
      else out.push_back(item.get<std::string>());
    }
    return out;
  }
  // A list of small indices.
  std::vector<size_t> Indices(const char* key) {
    std::vector<size_t> out;
    const nlohmann::json* v = Find(key);
    if (v && !v->is_array()) Wrong(key, "not a list");
    if (v && v->is_array())
      for (const nlohmann::json& item : *v) {
        if (!IsInt(item) || item.get<int64_t>() < 0 || item.get<int64_t>() > 63) Wrong(key, "not a list of numbers from 0 to 63");
        else out.push_back(item.get<size_t>());
      }
    return out;
  }
  // [first], [first, last]
  void Range(const char* key, int64_t* first, int64_t* last) {
    const nlohmann::json* v = Find(key);
    if (!v) return;
    if (!v->is_array() || v->empty() || v->size() > 2 || !IsInt((*v)[0]) || !IsInt(v->back()))
      return Wrong(key, "not [first] or [first, last]");
    *first = (*v)[0].get<int64_t>();
    if (v->size() == 2) *last = v->back().get<int64_t>();
    if (*first > *last) Wrong(key, "ends before it begins");
  }
  void Wrong(const std::string& key, const std::string& what) { errors_.Set(place_, key + ": " + what); }
  const std::string& place() const { return place_; }

  // Call last: keys that nobody asked for.
  void Done() {
    if (!j_.is_object()) return;
    for (const auto& item : j_.items())
      if (!asked_.contains(item.key())) errors_.Set(place_, "unknown key " + model::Quoted(item.key()));
  }

  static bool IsInt(const nlohmann::json& v) {
    return v.is_number_integer() && !(v.is_number_unsigned() && v.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
  }

 private:
  const nlohmann::json& j_;
  std::string place_;
  FirstError& errors_;
  std::set<std::string> asked_;
};

}  // namespace slm::targets
