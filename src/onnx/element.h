// ONNX's element types: numbers of TensorProto.DataType, names, widths and kinds in one table, read by the reader, the writer,
// the reference executor and inspect.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace slm::onnx {

enum class ElementType : uint8_t {
  kUndefined,
  kFloat,
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kInt32,
  kInt64,
  kString,
  kBool,
  kFloat16,
  kDouble,
  kUint32,
  kUint64,
  kComplex64,
  kComplex128,
  kBfloat16,
  kFloat8E4m3fn,
  kFloat8E4m3fnuz,
  kFloat8E5m2,
  kFloat8E5m2fnuz,
  kUint4,
  kInt4,
  kFloat4E2m1,
  kFloat8E8m0,
  kUint2,
  kInt2,
  kFloat6E2m3,
  kFloat6E3m2,
  kCount,
};

enum class ElementKind : uint8_t { kNone, kFloating, kSigned, kUnsigned, kBool, kString, kComplex };

struct ElementInfo {
  std::string_view name;  // as ONNX spells it
  ElementKind kind;
  int bits;  // of a stored element; elements below 8 bits follow each other from the lowest bit on. 0: strings
};

inline constexpr std::array<ElementInfo, static_cast<size_t>(ElementType::kCount)> kElementTable = {{
    {"UNDEFINED", ElementKind::kNone, 0},
    {"FLOAT", ElementKind::kFloating, 32},
    {"UINT8", ElementKind::kUnsigned, 8},
    {"INT8", ElementKind::kSigned, 8},
    {"UINT16", ElementKind::kUnsigned, 16},
    {"INT16", ElementKind::kSigned, 16},
    {"INT32", ElementKind::kSigned, 32},
    {"INT64", ElementKind::kSigned, 64},
    {"STRING", ElementKind::kString, 0},
    {"BOOL", ElementKind::kBool, 8},
    {"FLOAT16", ElementKind::kFloating, 16},
    {"DOUBLE", ElementKind::kFloating, 64},
    {"UINT32", ElementKind::kUnsigned, 32},
    {"UINT64", ElementKind::kUnsigned, 64},
    {"COMPLEX64", ElementKind::kComplex, 64},
    {"COMPLEX128", ElementKind::kComplex, 128},
    {"BFLOAT16", ElementKind::kFloating, 16},
    {"FLOAT8E4M3FN", ElementKind::kFloating, 8},
    {"FLOAT8E4M3FNUZ", ElementKind::kFloating, 8},
    {"FLOAT8E5M2", ElementKind::kFloating, 8},
    {"FLOAT8E5M2FNUZ", ElementKind::kFloating, 8},
    {"UINT4", ElementKind::kUnsigned, 4},
    {"INT4", ElementKind::kSigned, 4},
    {"FLOAT4E2M1", ElementKind::kFloating, 4},
    {"FLOAT8E8M0", ElementKind::kFloating, 8},
    {"UINT2", ElementKind::kUnsigned, 2},
    {"INT2", ElementKind::kSigned, 2},
    {"FLOAT6E2M3", ElementKind::kFloating, 6},
    {"FLOAT6E3M2", ElementKind::kFloating, 6},
}};

inline constexpr const ElementInfo& Info(ElementType type) { return kElementTable[static_cast<size_t>(type)]; }

// True for a number of a type that can hold values.
inline constexpr bool IsElementType(int64_t number) { return number > 0 && number < static_cast<int64_t>(ElementType::kCount); }

}  // namespace slm::onnx
