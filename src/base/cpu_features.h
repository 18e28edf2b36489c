// What this CPU can do, asked of CPUID (never of a model number), and the ISA tier that kernels are picked by.
#pragma once
#include <span>
#include <string>

#include "base/result.h"

namespace slm {

// Kernel tiers. Within an architecture a later one is the faster; which one runs the code of which is Includes.
enum class Isa : unsigned char { kScalar, kAvx2, kAvxVnni, kAvx512Vnni, kAvx512Bf16, kAvx512Amx, kNeonDot, kNeonI8mm };

const char* IsaName(Isa isa);  // "scalar", "avx2", "avxvnni", "avx512vnni", "avx512bf16", "amx", "neon_dotprod", "neon_i8mm"

// True when a CPU of tier `has` runs code of tier `needs`. AVX-VNNI (256 bits) is a branch of its own beside AVX-512.
constexpr bool Includes(Isa has, Isa needs) {
  if (needs == Isa::kScalar || needs == has) return true;
  switch (has) {
    case Isa::kAvxVnni:
    case Isa::kAvx512Vnni: return needs == Isa::kAvx2;
    case Isa::kAvx512Bf16: return needs == Isa::kAvx2 || needs == Isa::kAvx512Vnni;
    case Isa::kAvx512Amx: return needs == Isa::kAvx2 || needs == Isa::kAvx512Vnni || needs == Isa::kAvx512Bf16;
    case Isa::kNeonI8mm: return needs == Isa::kNeonDot;
    default: return false;
  }
}

// The tiers that have kernels in this build, rising; the scalar one first. Static storage.
std::span<const Isa> TiersOfThisBuild();

struct CpuFeatures {
  std::string brand;  // CPU model name as the CPU states it
  bool avx2 = false, fma = false, f16c = false, avx_vnni = false;
  bool avx512f = false, avx512bw = false, avx512vl = false, avx512dq = false, avx512vnni = false, avx512bf16 = false, avx512vbmi = false;
  bool amx_tile = false, amx_int8 = false, amx_bf16 = false;  // CPUID and XCR0 both agree
  bool amx_ready = false;   // beyond that, the system gave this process the tile registers and a test product came out right
  std::string amx_refusal;  // why not, where the CPU has AMX; else empty
  bool neon_dotprod = false, neon_i8mm = false;
};

// Reads CPUID and XCR0 (on Arm: hwcap), and where there is AMX asks the system for it (base/amx.h): the first call belongs before
// threads are started. Thread-safe, may be repeated; call once and keep.
CpuFeatures DetectCpu();

// True when `f` has every feature of the tier, whether or not this build has kernels for it.
bool Supports(const CpuFeatures& f, Isa isa);

// Highest tier that `f` supports among those with kernels in this build.
Isa BestIsa(const CpuFeatures& f);

// The tier to use: BestIsa, or the tier named by `forced` (the value of SLM_FORCE_ISA, empty: none).
// Errors: kInvalidArgument for an unknown name (lists the known ones), kUnsupported when the CPU lacks it or
// the system refuses it.
Result<Isa> ChooseIsa(const CpuFeatures& f, const std::string& forced);

// Space-separated names of the features found, for `slm devices` and benchmark records.
std::string FeatureList(const CpuFeatures& f);

}  // namespace slm
