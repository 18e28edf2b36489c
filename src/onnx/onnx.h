// The door of `onnx`: ONNX files as plain C++ structures, read and written.
//
// Reading checks everything that a later step would have to trust: sizes against shapes, external files against their folder, names
// against each other, the order of the nodes. Weights stay where they are: in the parsed message or in mapped external files.
// Specification: ONNX's docs/IR.md and docs/ExternalData.md. Not kept: training information, quantization annotations, device
// configurations, per-node metadata.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mmap.h"
#include "base/result.h"
#include "onnx/element.h"

namespace slm::onnx {

// `data`: little-endian, tightly packed, exactly as long as type and dims say; owned by the Model's storage. Not aligned.
struct Tensor {
  std::string name;
  ElementType type = ElementType::kUndefined;
  std::vector<int64_t> dims;         // none negative; the product fits int64
  std::span<const std::byte> data;   // empty for strings
  std::vector<std::string> strings;  // of type kString, one an element
  int external_file = -1;            // index in Model::external_files; -1: inside the message
  int64_t n_values() const;
};

// Bytes of `n` elements; n is not negative.
uint64_t StoredBytes(ElementType type, int64_t n);

struct SparseTensor {
  Tensor values, indices;
  std::vector<int64_t> dims;
};

struct Dim {
  int64_t value = -1;  // -1: open
  std::string symbol;  // name of an open dimension, may be empty
};

struct ValueType {
  enum class Kind : uint8_t { kNone, kTensor, kSparseTensor, kSequence, kOptional, kMap, kOpaque };
  Kind kind = Kind::kNone;
  ElementType element = ElementType::kUndefined;  // of tensors; the key of a map
  bool has_shape = false;
  std::vector<Dim> shape;
  std::vector<ValueType> inner;  // one for sequences, optionals and maps
};

struct ValueInfo {
  std::string name;
  ValueType type;
};

struct Graph;

// One of the lists holds the value: one element for a single kind, any number for a list.
struct Attribute {
  enum class Kind : uint8_t {
    kNone,
    kFloat,
    kInt,
    kString,
    kTensor,
    kGraph,
    kFloats,
    kInts,
    kStrings,
    kTensors,
    kGraphs,
    kSparseTensor,
    kSparseTensors,
    kType,
    kTypes
  };  // numbers of AttributeProto.AttributeType
  std::string name;
  Kind kind = Kind::kNone;
  std::string ref;  // in a function: the attribute of the caller that this one repeats; no value then
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string> strings;
  std::vector<Tensor> tensors;
  std::vector<Graph> graphs;
  std::vector<SparseTensor> sparse_tensors;
  std::vector<ValueType> types;
};

struct Node {
  std::string name, op_type, domain, overload;
  std::vector<std::string> inputs, outputs;  // "" where optional ones are left out
  std::vector<Attribute> attributes;
  const Attribute* Find(std::string_view attribute) const;  // nullptr: not there
  // The one whole number of an attribute; `otherwise` when it is not there or holds something else.
  int64_t Int(std::string_view attribute, int64_t otherwise) const;
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;  // in an order in which they can run
  std::vector<Tensor> initializers;
  std::vector<SparseTensor> sparse_initializers;
  std::vector<ValueInfo> inputs, outputs, value_infos;
};

struct Opset {
  std::string domain;  // "" is ONNX's own, also where the file says "ai.onnx"
  int64_t version = 0;
};

struct Function {
  std::string domain, name, overload;
  std::vector<std::string> inputs, outputs, attribute_names;
  std::vector<Attribute> attributes;  // with default values
  std::vector<Node> nodes;
  std::vector<Opset> opsets;
  std::vector<ValueInfo> value_infos;
};

struct ExternalFile {
  std::string name;  // relative to the model's folder, as the model spells it
  uint64_t bytes = 0;
};

struct Model {
  std::string path;
  uint64_t file_bytes = 0;
  int64_t ir_version = 0, model_version = 0;
  std::string producer_name, producer_version, domain, doc;
  std::vector<Opset> opsets;
  Graph graph;
  std::vector<Function> functions;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<ExternalFile> external_files;  // in the order of first use
  std::shared_ptr<const void> storage;       // what `data` of every tensor points into, with
  std::vector<MappedFile> maps;              // those of the external files
};

// Of a domain in what a model or function imports; 0: not imported.
int64_t OpsetVersion(std::span<const Opset> opsets, std::string_view domain);

// Newest operator set of ONNX's own domain that this build knows the meaning of. A newer one can be read, not executed.
inline constexpr int64_t kNewestOpset = 28;

// Opens an ONNX file and maps its external data. Errors: kNotFound, kIo, kLimit (a message of 2 GiB and more), kUnsupported (an IR
// version or an element type from after this build), kCorrupt (anything that contradicts itself: file, tensor or node are named).
// Thread-safe; the result may be shared as a const Model.
Result<Model> ReadModel(const std::string& path);

// The same from bytes that outlive the call only; external data is looked for in `folder`, "" refuses it.
Result<Model> ParseModel(std::span<const std::byte> bytes, const std::string& folder);

// A TensorProto alone (node tests keep inputs and outputs so). External data is refused.
struct LooseTensor {
  Tensor tensor;
  std::shared_ptr<const void> storage;
};
Result<LooseTensor> ReadTensor(const std::string& path);
Result<LooseTensor> ParseTensor(std::span<const std::byte> bytes);

// Where an initializer's bytes lie: a file beside the model, which others may read, too.
struct TensorPlace {
  std::string file;  // plain name
  uint64_t offset = 0;
};

struct WriteOptions {
  // Tensors of the main graph of at least so many bytes go into one file beside the model; each begins at a multiple of 4096, of 65536
  // when it is longer than 1 MiB (so that Windows can map it too). Tensors whose `data` is the same memory share their place.
  uint64_t external_from_bytes = 1024;
  std::string data_name;  // name of that file, which stands in the model; a plain name
  // Of the main graph, by name: what lies in a file already. Only the place is written; its `data` is not looked at.
  std::map<std::string, TensorPlace> places;
};
using ByteSink = std::function<Status(std::span<const std::byte>)>;
// Writes first the external data, if any, then the message; the same model gives the same bytes. Errors: a sink's, kLimit (the message
// would reach 2 GiB), kInvalidArgument (data_name or that of a place is not the name of a file).
Status WriteModel(const Model& model, const WriteOptions& options, const ByteSink& message, const ByteSink& data);

// "[2, T, ?]"
std::string ShapeText(const std::vector<Dim>& shape);
std::string ShapeText(std::span<const int64_t> dims);

}  // namespace slm::onnx
