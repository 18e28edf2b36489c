// Protobuf wire format: a field is a varint key (number << 3 | type) and a value. Types: 0 varint, 1 eight bytes, 2 length and
// bytes, 5 four bytes.
#include "text/sentencepiece.h"

#include <cstring>
#include <string>

namespace slm::text {
namespace {

struct Field {
  uint32_t number = 0;
  uint32_t type = 0;
  uint64_t varint = 0;     // type 0
  std::string_view bytes;  // types 1, 2, 5
};

class Message {
 public:
  Message(std::string_view bytes, const char* base) : rest_(bytes), base_(base) {}
  bool done() const { return rest_.empty(); }

  Result<Field> Next() {
    Field f;
    SLM_ASSIGN_OR_RETURN(const uint64_t key, Varint());
    f.number = static_cast<uint32_t>(key >> 3);
    f.type = static_cast<uint32_t>(key & 7);
    if (key >> 32 != 0 || f.number == 0) return Bad("field number out of range");
    if (f.type == 0) {
      SLM_ASSIGN_OR_RETURN(f.varint, Varint());
      return f;
    }
    uint64_t n = f.type == 1 ? 8 : 4;
    if (f.type == 2) {
      SLM_ASSIGN_OR_RETURN(n, Varint());
    } else if (f.type != 1 && f.type != 5) {
      return Bad("unknown wire type " + std::to_string(f.type));
    }
    if (n > rest_.size()) return Bad("a field of " + std::to_string(n) + " bytes where " + std::to_string(rest_.size()) + " are left");
    f.bytes = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return f;
  }

  Error Bad(const std::string& what) const {
    const auto at = rest_.data() == nullptr ? 0 : rest_.data() - base_;
    return Error(Code::kCorrupt, "tokenizer.model: byte " + std::to_string(at) + ": " + what, "download the file again");
  }

 private:
  Result<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return Bad("ends inside a number");
      const auto b = static_cast<uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      if (shift == 63 && b > 1) break;
      value |= static_cast<uint64_t>(b & 0x7F) << shift;
      if (b < 0x80) return value;
    }
    return Bad("a number of more than 64 bits");
  }

  std::string_view rest_;
  const char* base_;
};

Status ReadPiece(std::string_view bytes, const char* base, SentencePieceModel& model) {
  std::string_view piece;
  float score = 0;
  int32_t type = 1;
  for (Message m(bytes, base); !m.done();) {
    SLM_ASSIGN_OR_RETURN(const Field f, m.Next());
    if (f.number == 1 && f.type == 2) piece = f.bytes;
    if (f.number == 2 && f.type == 5) std::memcpy(&score, f.bytes.data(), sizeof score);  // protobuf and this code: little-endian
    if (f.number == 3 && f.type == 0) {
      if (f.varint < 1 || f.varint > 6) return m.Bad("unknown piece type " + std::to_string(f.varint));
      type = static_cast<int32_t>(f.varint);
    }
  }
  model.pieces.push_back(piece);
  model.scores.push_back(score);
  model.types.push_back(type);
  return Ok();
}

Status ReadTrainer(std::string_view bytes, const char* base, SentencePieceModel& model) {
  for (Message m(bytes, base); !m.done();) {
    SLM_ASSIGN_OR_RETURN(const Field f, m.Next());
    if (f.type != 0) continue;
    if (f.number == 3) {
      if (f.varint < 1 || f.varint > 4) return m.Bad("unknown model type " + std::to_string(f.varint));
      model.kind = static_cast<SentencePieceModel::Kind>(f.varint);
    }
    const auto id = static_cast<int32_t>(f.varint);  // negative ids are sign-extended varints
    if (f.number == 40) model.unk = id;
    if (f.number == 41) model.bos = id;
    if (f.number == 42) model.eos = id;
    if (f.number == 43) model.pad = id;
  }
  return Ok();
}

Status ReadNormalizer(std::string_view bytes, const char* base, SentencePieceModel& model) {
  for (Message m(bytes, base); !m.done();) {
    SLM_ASSIGN_OR_RETURN(const Field f, m.Next());
    if (f.number == 2 && f.type == 2) model.charsmap = f.bytes;
    if (f.number == 3 && f.type == 0) model.add_dummy_prefix = f.varint != 0;
    if (f.number == 4 && f.type == 0) model.remove_extra_whitespaces = f.varint != 0;
  }
  return Ok();
}

}  // namespace

Result<SentencePieceModel> ReadSentencePiece(std::string_view bytes) {
  SentencePieceModel model;
  const char* base = bytes.data();
  Message m(bytes, base);
  while (!m.done()) {
    SLM_ASSIGN_OR_RETURN(const Field f, m.Next());
    if (f.type != 2) continue;
    if (f.number == 1) SLM_RETURN_IF_ERROR(ReadPiece(f.bytes, base, model));
    if (f.number == 2) SLM_RETURN_IF_ERROR(ReadTrainer(f.bytes, base, model));
    if (f.number == 3) SLM_RETURN_IF_ERROR(ReadNormalizer(f.bytes, base, model));
  }
  if (model.pieces.empty()) return m.Bad("no pieces: not a SentencePiece model");
  const auto n = static_cast<int32_t>(model.pieces.size());
  for (int32_t* id : {&model.unk, &model.bos, &model.eos, &model.pad}) {
    if (*id < 0) *id = -1;
    if (*id >= n) return m.Bad("a control id " + std::to_string(*id) + " outside the " + std::to_string(n) + " pieces");
  }
  return model;
}

}  // namespace slm::text
