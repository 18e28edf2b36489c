// Tile products from registers: four accumulators, so that each TDPBUSD (16 x 16 x 64) waits for none of its three neighbours.
// Reading memory is the business of the 512-bit loop.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/packed/amx_tiles.h"
#include "kernels/probe/contract.h"

namespace slm::kernels {
namespace {

double TileDot(int64_t rounds) {
  const TileConfig config = FullTiles();
  SLM_WITH_TILE_CONFIG("ldtilecfg %0", config);
  alignas(64) uint8_t ones[1024];
  for (auto& v : ones) v = 1;
  asm volatile("" : "+m"(ones));  // GCC 12's tile loads do not say what they read
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, ones, 64);
  _tile_loadd(5, ones, 64);
  _tile_loadd(6, ones, 64);
  _tile_loadd(7, ones, 64);
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  _tile_release();
  return 4.0 * 16 * 16 * 64 * 2 * static_cast<double>(rounds);
}

}  // namespace

extern const ProbeKernels kProbeAmx;
const ProbeKernels kProbeAmx = {nullptr, TileDot, "probe_amx"};

}  // namespace slm::kernels
