// See header.h. The grammar is fixed and shallow: {name: {dtype, shape: [n…], data_offsets: [n, n]}, "__metadata__": {k: s}}.
#include "model/safetensors/header.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "model/quoted.h"

namespace slm::model::safetensors {
namespace {

using Json = nlohmann::json;
constexpr size_t kMaxDims = 8;

// Receives the parser's events; the first one that does not fit stops it with `problem`.
class HeaderEvents : public nlohmann::json_sax<Json> {
 public:
  Header header;
  std::string problem;

  bool start_object(std::size_t) override {
    if (state_ == State::kStart) return Go(State::kTop);
    if (state_ == State::kTop && have_key_) {
      have_key_ = false;
      if (key_ == "__metadata__") return Go(State::kMetadata);
      header.rows.push_back({key_, {}, {}, {}});
      fields_ = 0;
      return Go(State::kEntry);
    }
    return Fail("an object where none belongs");
  }
  bool end_object() override {
    if (state_ == State::kTop) return Go(State::kDone);
    if (state_ == State::kMetadata) return Go(State::kTop);
    if (fields_ != (kDtype | kShape | kOffsets)) return Fail("dtype, shape or data_offsets is missing");
    return Go(State::kTop);
  }
  bool start_array(std::size_t) override {
    if (state_ == State::kEntry && key_ == "shape") return Go(State::kInShape);
    if (state_ == State::kEntry && key_ == "data_offsets") return Go(State::kInOffsets);
    return Fail("an array where none belongs");
  }
  bool end_array() override {
    if (state_ == State::kInOffsets && header.rows.back().offsets.size() != 2) return Fail("data_offsets are not two numbers");
    return Go(State::kEntry);
  }
  bool key(string_t& k) override {
    key_ = k;
    have_key_ = true;
    if (state_ == State::kTop) {
      if (!names_.insert(k).second) return Fail("the name occurs twice");
    } else if (state_ == State::kMetadata) {
      if (!metadata_keys_.insert(k).second) return Fail("a metadata key occurs twice");
    } else {
      const unsigned field = k == "dtype" ? kDtype : k == "shape" ? kShape : k == "data_offsets" ? kOffsets : 0;
      if (field == 0) return Fail("unknown field " + Quoted(k));
      if (fields_ & field) return Fail("field " + Quoted(k) + " occurs twice");
      fields_ |= field;
    }
    return true;
  }
  bool string(string_t& s) override {
    if (state_ == State::kMetadata) {
      header.metadata.emplace_back(key_, s);
      return true;
    }
    if (state_ != State::kEntry || key_ != "dtype") return Fail("a string where none belongs");
    header.rows.back().dtype = s;
    return true;
  }
  bool number_unsigned(number_unsigned_t n) override {
    if (state_ == State::kInShape && header.rows.back().shape.size() < kMaxDims) {
      header.rows.back().shape.push_back(n);
      return true;
    }
    if (state_ == State::kInOffsets && header.rows.back().offsets.size() < 2) {
      header.rows.back().offsets.push_back(n);
      return true;
    }
    return Fail("a number where none belongs");
  }
  bool number_integer(number_integer_t) override { return Fail("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return Fail("a number that is not a plain 64-bit integer"); }
  bool boolean(bool) override { return Fail("a boolean where none belongs"); }
  bool null() override { return Fail("a null where none belongs"); }
  bool binary(binary_t&) override { return Fail("binary data in JSON"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    problem = fmt::format("the header is not valid JSON at byte {}", position);
    return false;
  }

 private:
  enum class State : uint8_t { kStart, kTop, kEntry, kInShape, kInOffsets, kMetadata, kDone };
  static constexpr unsigned kDtype = 1, kShape = 2, kOffsets = 4;

  bool Go(State s) {
    state_ = s;
    return true;
  }
  bool Fail(const std::string& what) {
    const bool in_row = state_ == State::kEntry || state_ == State::kInShape || state_ == State::kInOffsets;
    const std::string& place = in_row ? header.rows.back().name : key_;
    problem = "header, near " + Quoted(place) + ": " + what;
    return false;
  }

  State state_ = State::kStart;
  std::string key_;
  bool have_key_ = false;
  unsigned fields_ = 0;
  std::unordered_set<std::string> names_, metadata_keys_;
};

}  // namespace

Result<Header> ParseHeader(std::string_view json) {
  HeaderEvents events;
  if (!Json::sax_parse(json.begin(), json.end(), &events))
    return Error(Code::kCorrupt, events.problem, "the file is damaged: fetch it again");
  return std::move(events.header);
}

}  // namespace slm::model::safetensors
