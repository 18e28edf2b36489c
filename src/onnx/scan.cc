// See scan.h. Field numbers: third_party/onnx/onnx-ml.proto. Wire format: protobuf's encoding page.
#include "onnx/scan.h"

#include <fmt/format.h>

#include <cstdint>

namespace slm::onnx {
namespace {

constexpr int64_t kMaxMessages = int64_t{1} << 21, kMaxFields = int64_t{1} << 24;
constexpr int kMaxDepth = 100;  // protobuf refuses what is deeper

enum class Kind : unsigned char {
  kModel,
  kTraining,
  kGraph,
  kNode,
  kAttribute,
  kTensor,
  kSparse,
  kFunction,
  kValue,
  kType,
  kShape,
  kLeaf,
  kNone
};

struct Row {
  Kind parent;
  uint32_t field;
  Kind child;
};

// Fields that hold messages. Type is entered by every field: its wrappers hold types again.
constexpr Row kRows[] = {
    {Kind::kModel, 7, Kind::kGraph},       {Kind::kModel, 8, Kind::kLeaf},        {Kind::kModel, 14, Kind::kLeaf},
    {Kind::kModel, 20, Kind::kTraining},   {Kind::kModel, 25, Kind::kFunction},   {Kind::kModel, 26, Kind::kLeaf},
    {Kind::kTraining, 1, Kind::kGraph},    {Kind::kTraining, 2, Kind::kGraph},    {Kind::kTraining, 3, Kind::kLeaf},
    {Kind::kTraining, 4, Kind::kLeaf},     {Kind::kGraph, 1, Kind::kNode},        {Kind::kGraph, 5, Kind::kTensor},
    {Kind::kGraph, 11, Kind::kValue},      {Kind::kGraph, 12, Kind::kValue},      {Kind::kGraph, 13, Kind::kValue},
    {Kind::kGraph, 14, Kind::kShape},      {Kind::kGraph, 15, Kind::kSparse},     {Kind::kGraph, 16, Kind::kLeaf},
    {Kind::kNode, 5, Kind::kAttribute},    {Kind::kNode, 9, Kind::kLeaf},         {Kind::kNode, 10, Kind::kShape},
    {Kind::kAttribute, 5, Kind::kTensor},  {Kind::kAttribute, 6, Kind::kGraph},   {Kind::kAttribute, 10, Kind::kTensor},
    {Kind::kAttribute, 11, Kind::kGraph},  {Kind::kAttribute, 14, Kind::kType},   {Kind::kAttribute, 15, Kind::kType},
    {Kind::kAttribute, 22, Kind::kSparse}, {Kind::kAttribute, 23, Kind::kSparse}, {Kind::kTensor, 13, Kind::kLeaf},
    {Kind::kTensor, 16, Kind::kLeaf},      {Kind::kSparse, 1, Kind::kTensor},     {Kind::kSparse, 2, Kind::kTensor},
    {Kind::kFunction, 7, Kind::kNode},     {Kind::kFunction, 9, Kind::kLeaf},     {Kind::kFunction, 11, Kind::kAttribute},
    {Kind::kFunction, 12, Kind::kValue},   {Kind::kFunction, 14, Kind::kLeaf},    {Kind::kValue, 2, Kind::kType},
    {Kind::kValue, 4, Kind::kLeaf},        {Kind::kType, 1, Kind::kType},         {Kind::kType, 2, Kind::kShape},
    {Kind::kType, 4, Kind::kType},         {Kind::kType, 5, Kind::kType},         {Kind::kType, 7, Kind::kLeaf},
    {Kind::kType, 8, Kind::kType},         {Kind::kType, 9, Kind::kType},         {Kind::kShape, 1, Kind::kLeaf},
    {Kind::kShape, 2, Kind::kLeaf},        {Kind::kShape, 3, Kind::kShape},       {Kind::kShape, 4, Kind::kShape},
};

Kind ChildOf(Kind parent, uint64_t field) {
  for (const Row& r : kRows)
    if (r.parent == parent && r.field == field) return r.child;
  return Kind::kNone;
}

class Scan {
 public:
  // True: within the limits, or damaged.
  bool Message(std::span<const std::byte> bytes, Kind kind, int depth) {
    if (++messages_ > kMaxMessages) return false;
    if (depth > kMaxDepth) return true;
    uint64_t tag = 0, length = 0;
    while (!bytes.empty()) {
      if (++fields_ > kMaxFields) return false;
      if (!Varint(bytes, tag)) return true;
      switch (tag & 7) {
        case 0:
          if (!Varint(bytes, length)) return true;
          continue;
        case 1: length = 8; break;
        case 2:
          if (!Varint(bytes, length)) return true;
          break;
        case 5: length = 4; break;
        default: return true;  // groups: no ONNX message has one
      }
      if (length > bytes.size()) return true;
      const auto part = bytes.first(static_cast<size_t>(length));
      bytes = bytes.subspan(part.size());
      const Kind child = (tag & 7) == 2 ? ChildOf(kind, tag >> 3) : Kind::kNone;
      if (child != Kind::kNone && !Message(part, child, depth + 1)) return false;
    }
    return true;
  }

 private:
  static bool Varint(std::span<const std::byte>& bytes, uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes.empty()) return false;
      const uint64_t byte = std::to_integer<uint64_t>(bytes.front());
      bytes = bytes.subspan(1);
      value |= (byte & 127) << shift;
      if (byte < 128) return true;
    }
    return false;
  }
  int64_t messages_ = 0, fields_ = 0;
};

}  // namespace

Status CheckExpansion(std::span<const std::byte> bytes, Root root) {
  if (Scan().Message(bytes, root == Root::kModel ? Kind::kModel : Kind::kTensor, 0)) return Ok();
  return Error(Code::kLimit, fmt::format("more than {} messages or {} fields", kMaxMessages, kMaxFields),
               "no model is built of so many parts: check where the file comes from");
}

}  // namespace slm::onnx
