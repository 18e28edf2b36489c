// Typed look-ups in a config.json object. null counts as absent; a wrong type is an error, never a default.
#pragma once
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"

namespace slm::model::hf {

class Keys {
 public:
  explicit Keys(const nlohmann::json& object) : object_(object) {}

  // The value, or nullptr when it is absent or null.
  const nlohmann::json* Find(const char* name) const {
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(name);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  bool Has(const char* name) const { return Find(name) != nullptr; }
  // Stated at all, be it as null.
  bool States(const char* name) const { return object_.is_object() && object_.contains(name); }

  // `out` keeps its value when the key is absent.
  Status Int(const char* name, int* out) const {
    const nlohmann::json* v = Find(name);
    if (!v) return Ok();
    if (!v->is_number_integer()) return Wrong(name, "an integer");
    const bool huge = v->is_number_unsigned() && v->get<uint64_t>() > INT32_MAX;
    const int64_t n = huge ? INT64_MAX : v->get<int64_t>();
    if (n < 0 || n > INT32_MAX) return Wrong(name, "a size: it is " + v->dump());
    *out = static_cast<int>(n);
    return Ok();
  }
  template <class F>
  Status Float(const char* name, F* out) const {
    const nlohmann::json* v = Find(name);
    if (!v) return Ok();
    if (!v->is_number() || !std::isfinite(v->get<double>())) return Wrong(name, "a finite number");
    *out = static_cast<F>(v->get<double>());
    return Ok();
  }
  Status Bool(const char* name, bool* out) const {
    const nlohmann::json* v = Find(name);
    if (!v) return Ok();
    if (!v->is_boolean()) return Wrong(name, "true or false");
    *out = v->get<bool>();
    return Ok();
  }
  Status Text(const char* name, std::string* out) const {
    const nlohmann::json* v = Find(name);
    if (!v) return Ok();
    if (!v->is_string()) return Wrong(name, "a string");
    *out = v->get_ref<const std::string&>();
    return Ok();
  }
  // An object, or nullptr when absent.
  Result<const nlohmann::json*> Object(const char* name) const {
    const nlohmann::json* v = Find(name);
    if (v && !v->is_object()) return Wrong(name, "an object");
    return v;
  }
  // A list; nullptr when absent.
  Result<const nlohmann::json*> List(const char* name) const {
    const nlohmann::json* v = Find(name);
    if (v && !v->is_array()) return Wrong(name, "a list");
    return v;
  }

  static Error Wrong(const char* name, const std::string& wanted) {
    return Error(Code::kCorrupt, fmt::format("\"{}\" is not {}", name, wanted), "the file is damaged, or not made for this model");
  }

 private:
  const nlohmann::json& object_;
};

}  // namespace slm::model::hf
