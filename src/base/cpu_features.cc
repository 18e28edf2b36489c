#include "base/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <cstdint>
#include <cstring>

#include "base/amx.h"

namespace slm {

const char* IsaName(Isa isa) {
  switch (isa) {
    case Isa::kScalar: return "scalar";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvxVnni: return "avxvnni";
    case Isa::kAvx512Vnni: return "avx512vnni";
    case Isa::kAvx512Bf16: return "avx512bf16";
    case Isa::kAvx512Amx: return "amx";
    case Isa::kNeonDot: return "neon_dotprod";
    case Isa::kNeonI8mm: return "neon_i8mm";
  }
  return "?";
}

#if defined(__x86_64__)
namespace {
struct Regs {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};
Regs Cpuid(uint32_t leaf, uint32_t sub) {
  Regs r;
  if (!__get_cpuid_count(leaf, sub, &r.a, &r.b, &r.c, &r.d)) return {};
  return r;
}
uint64_t Xcr0() {
  uint32_t lo, hi;
  __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return (static_cast<uint64_t>(hi) << 32) | lo;
}
bool Bit(uint32_t r, int i) { return (r >> i) & 1u; }
std::string Brand() {
  char text[49] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    const Regs r = Cpuid(0x80000002u + i, 0);
    std::memcpy(text + 16 * i, &r, 16);
  }
  std::string s = text;
  while (!s.empty() && s.back() == ' ') s.pop_back();
  return s.substr(s.find_first_not_of(' ') == std::string::npos ? 0 : s.find_first_not_of(' '));
}
}  // namespace

// Bit numbers: Intel SDM volume 2A, CPUID leaves 1, 7.0, 7.1; XCR0: bits 1,2 (SSE, AVX), 5-7 (AVX-512), 17-18 (AMX).
CpuFeatures DetectCpu() {
  CpuFeatures f;
  f.brand = Brand();
  const Regs l1 = Cpuid(1, 0), l7 = Cpuid(7, 0), l71 = Cpuid(7, 1);
  if (!Bit(l1.c, 27)) return f;  // no OSXSAVE: the system saves no vector state beyond SSE
  const uint64_t x = Xcr0();
  const bool ymm = (x & 0x6) == 0x6, zmm = ymm && (x & 0xe0) == 0xe0, tile = (x & 0x60000) == 0x60000;
  f.fma = ymm && Bit(l1.c, 12);
  f.f16c = ymm && Bit(l1.c, 29);
  f.avx2 = ymm && Bit(l7.b, 5);
  f.avx_vnni = ymm && Bit(l71.a, 4);
  f.avx512f = zmm && Bit(l7.b, 16);
  f.avx512dq = zmm && Bit(l7.b, 17);
  f.avx512bw = zmm && Bit(l7.b, 30);
  f.avx512vl = zmm && Bit(l7.b, 31);
  f.avx512vbmi = zmm && Bit(l7.c, 1);
  f.avx512vnni = zmm && Bit(l7.c, 11);
  f.avx512bf16 = zmm && Bit(l71.a, 5);
  f.amx_bf16 = tile && Bit(l7.d, 22);
  f.amx_tile = tile && Bit(l7.d, 24);
  f.amx_int8 = tile && Bit(l7.d, 25);
#if defined(SLM_AMX_EMULATED)  // a build whose tile operations are C++
  f.amx_ready = f.avx512bf16;
#else
  if (f.amx_tile && f.amx_int8 && f.amx_bf16) {
    const Status enabled = EnableAmx();
    f.amx_ready = enabled.ok();
    if (!enabled.ok()) f.amx_refusal = enabled.error().message();
  }
#endif
  return f;
}
#elif defined(__aarch64__)
CpuFeatures DetectCpu() {
  CpuFeatures f;
  f.brand = "aarch64";
  f.neon_dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  f.neon_i8mm = (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
  return f;
}
#else
CpuFeatures DetectCpu() { return {}; }
#endif

namespace {
constexpr Isa kTiers[] = {
    Isa::kScalar,
#if defined(__x86_64__)
    Isa::kAvx2,   Isa::kAvxVnni, Isa::kAvx512Vnni, Isa::kAvx512Bf16, Isa::kAvx512Amx,
#elif defined(__aarch64__)
    Isa::kNeonDot,
    Isa::kNeonI8mm,
#endif
};
}  // namespace

std::span<const Isa> TiersOfThisBuild() { return kTiers; }

bool Supports(const CpuFeatures& f, Isa isa) {
  const bool avx2 = f.avx2 && f.fma && f.f16c;
  const bool vnni = avx2 && f.avx512f && f.avx512bw && f.avx512vl && f.avx512dq && f.avx512vnni;
  switch (isa) {
    case Isa::kScalar: return true;
    case Isa::kAvx2: return avx2;
    case Isa::kAvxVnni: return avx2 && f.avx_vnni;
    case Isa::kAvx512Vnni: return vnni;
    case Isa::kAvx512Bf16: return vnni && f.avx512bf16;
    case Isa::kAvx512Amx: return vnni && f.avx512bf16 && f.amx_ready;
    case Isa::kNeonDot: return f.neon_dotprod;
    case Isa::kNeonI8mm: return f.neon_dotprod && f.neon_i8mm;
  }
  return false;
}

Isa BestIsa(const CpuFeatures& f) {
  Isa best = Isa::kScalar;
  for (const Isa isa : kTiers)
    if (Supports(f, isa)) best = isa;
  return best;
}

Result<Isa> ChooseIsa(const CpuFeatures& f, const std::string& forced) {
  const Isa best = BestIsa(f);
  if (forced.empty()) return best;
  std::string known;
  for (const Isa isa : kTiers) {
    known += (known.empty() ? "" : " ") + std::string(IsaName(isa));
    if (forced != IsaName(isa)) continue;
    const std::string why = isa == Isa::kAvx512Amx && !f.amx_refusal.empty() ? f.amx_refusal : "this CPU has no such instructions";
    if (!Supports(f, isa))
      return Error(Code::kUnsupported, "SLM_FORCE_ISA=" + forced + ": " + why + "; the best tier here is " + IsaName(best),
                   "name a lower tier or unset SLM_FORCE_ISA");
    return isa;
  }
  return Error(Code::kInvalidArgument, "SLM_FORCE_ISA=" + forced + ": unknown tier", "known: " + known);
}

std::string FeatureList(const CpuFeatures& f) {
  const struct {
    bool on;
    const char* name;
  } all[] = {{f.avx2, "avx2"},
             {f.fma, "fma"},
             {f.f16c, "f16c"},
             {f.avx_vnni, "avx_vnni"},
             {f.avx512f, "avx512f"},
             {f.avx512bw, "avx512bw"},
             {f.avx512vl, "avx512vl"},
             {f.avx512dq, "avx512dq"},
             {f.avx512vnni, "avx512_vnni"},
             {f.avx512bf16, "avx512_bf16"},
             {f.avx512vbmi, "avx512_vbmi"},
             {f.amx_tile, "amx_tile"},
             {f.amx_int8, "amx_int8"},
             {f.amx_bf16, "amx_bf16"},
             {f.neon_dotprod, "dotprod"},
             {f.neon_i8mm, "i8mm"}};
  std::string s;
  for (const auto& x : all)
    if (x.on) s += (s.empty() ? "" : " ") + std::string(x.name);
  return s;
}

}  // namespace slm
