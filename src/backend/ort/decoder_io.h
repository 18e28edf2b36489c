// What a decoder's session takes and gives, by the roles that an exported language model has. Internal to ort/.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "backend/ort/session.h"

namespace slm::backend::ort {

struct Port {
  std::string name;
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  std::vector<int64_t> dims;              // -1: open
  const OrtMemoryInfo* memory = nullptr;  // of the device that wants it in its own memory; null: the CPU's. The session owns it
};

struct CachePort {
  Port past, present;
};

struct DecoderIo {
  Port ids;        // [1, T]
  Port mask;       // [1, past + T]; name "" when the graph has none
  Port positions;  // [1, T]; likewise
  Port logits;     // [1, T or 1, V]
  bool last_row_only = false;
  std::vector<CachePort> cache;                 // keys and values of every layer, [1, Hkv, S, D]
  const OrtMemoryInfo* cache_memory = nullptr;  // of all of them, as Port::memory
};

// All inputs and outputs of a session. Error: kUnsupported (one that is no tensor).
struct SessionPorts {
  std::vector<Port> inputs, outputs;
};
Result<SessionPorts> ReadPorts(const OrtApi& api, const OrtSession* session);
// Moves the port of that name out of the list; an empty one when it is not there.
Port TakePort(std::vector<Port>& ports, const std::string& name);
// `pattern` with its %d filled; the pattern was checked by whoever read it.
std::string OfLayer(const std::string& pattern, int layer);

// Bytes of an element; 0: a type that has no place here.
int ElementBytes(ONNXTensorElementDataType type);
const char* ElementName(ONNXTensorElementDataType type);  // "f32"

// Sorts the session's inputs and outputs into roles. Errors: kUnsupported, naming the one that does not fit.
Result<DecoderIo> ReadIo(const OrtApi& api, const OrtSession* session, const Decoder& decoder);

}  // namespace slm::backend::ort
