// f32 keys and values of one token into their cache slots.
#pragma once
#include <stdint.h>

namespace slm {
enum class Isa : unsigned char;
}

namespace slm::kernels {

// Values of the cache. kInt8 lies in tiles and has a family of its own (kernels/attention_int8), which also fills it.
enum class KvType : uint8_t { kF16, kF32, kInt8 };
inline constexpr const char* kKvTypeNames[] = {"f16", "f32", "int8"};  // by KvType; what users write and read

struct KvPackKernels {
  void (*store_f16)(const float* x, int n, uint16_t* dst);  // round to nearest even
  const char* name;
};
KvPackKernels KvPack(Isa isa);  // best tier <= isa; pure

}  // namespace slm::kernels
