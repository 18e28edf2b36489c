// Tile instructions on a CPU that has none: they raise SIGILL there, and the handler decodes and carries them out. Proves the machine
// code of tier amx itself (registers, addresses, order, configuration), where matmul_tiles.h alone proves its arithmetic.
//
// Only what AmxTiles emits is known; anything else, and a tile used before it was configured, aborts with the reason. Encodings: Intel
// SDM volume 2 (VEX.128, map 0F38, opcodes 49, 4B, 5C). For tests only: changes the process' SIGILL handler while it lives.
#pragma once
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

namespace slm::kernels::check {

class AmxTrap {
 public:
  AmxTrap() {
    struct sigaction action = {};
    action.sa_sigaction = &OnIllegal;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, &before_);
  }
  ~AmxTrap() { sigaction(SIGILL, &before_, nullptr); }
  AmxTrap(const AmxTrap&) = delete;
  AmxTrap& operator=(const AmxTrap&) = delete;

  static int64_t n_products() { return Now().n_products; }
  static bool configured() { return Now().config[0] == 1; }

 private:
  struct State {
    uint8_t config[64] = {};
    uint8_t tile[8][16][64] = {};
    int64_t n_products = 0;
  };
  static State& Now() {
    static State state;
    return state;
  }

  [[noreturn]] static void Refuse(const char* why, const uint8_t* code) {
    fprintf(stderr, "AmxTrap: %s:", why);
    for (int i = 0; i < 8; ++i) fprintf(stderr, " %02x", code[i]);
    fprintf(stderr, "\n");
    abort();
  }

  // Value of general register n (as instructions number them).
  static uint64_t Register(const ucontext_t& context, int n) {
    static constexpr int kSlot[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                      REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return static_cast<uint64_t>(context.uc_mcontext.gregs[kSlot[n]]);
  }

  // Rows and bytes a row of a tile; both must be set.
  static void Shape(int tile, const uint8_t* code, int& rows, int& bytes) {
    const uint8_t* c = Now().config;
    rows = c[48 + tile];
    bytes = c[16 + 2 * tile] | c[17 + 2 * tile] << 8;
    if (c[0] != 1 || rows < 1 || rows > 16 || bytes < 1 || bytes > 64) Refuse("a tile that is not configured", code);
  }

  static float BFloat16(const uint8_t* p) {
    const uint32_t bits = static_cast<uint32_t>(p[0] | p[1] << 8) << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
  }

  static void Product(int c, int a, int b, const uint8_t* code) {
    int c_rows, c_bytes, a_rows, a_bytes, b_rows, b_bytes;
    Shape(c, code, c_rows, c_bytes);
    Shape(a, code, a_rows, a_bytes);
    Shape(b, code, b_rows, b_bytes);
    if (c_rows != a_rows || c_bytes != b_bytes || a_bytes != b_rows * 4 || c == a || c == b || a == b)
      Refuse("shapes that do not fit", code);
    State& s = Now();
    ++s.n_products;
    for (int m = 0; m < c_rows; ++m)
      for (int n = 0; n < c_bytes / 4; ++n) {
        float even = 0, odd = 0, sum;
        for (int pair = 0; pair < b_rows; ++pair) {
          even += BFloat16(&s.tile[a][m][pair * 4]) * BFloat16(&s.tile[b][pair][n * 4]);
          odd += BFloat16(&s.tile[a][m][pair * 4 + 2]) * BFloat16(&s.tile[b][pair][n * 4 + 2]);
        }
        memcpy(&sum, &s.tile[c][m][n * 4], 4);
        sum += even + odd;
        memcpy(&s.tile[c][m][n * 4], &sum, 4);
      }
  }

  static void OnIllegal(int, siginfo_t*, void* raw) {
    ucontext_t& context = *static_cast<ucontext_t*>(raw);
    const uint8_t* code = reinterpret_cast<const uint8_t*>(context.uc_mcontext.gregs[REG_RIP]);
    if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x84) != 0) Refuse("no tile instruction", code);
    const int prefix = code[2] & 3, opcode = code[3], mod = code[4] >> 6, reg = code[4] >> 3 & 7, rm = code[4] & 7;
    enum { kNone, k66, kF3, kF2 };
    int length = 5;
    State& s = Now();
    if (opcode == 0x5c && prefix == kF3 && mod == 3) {
      Product(reg, rm, ~code[2] >> 3 & 7, code);
    } else if (opcode == 0x49 && prefix == kF2 && mod == 3) {
      int rows, bytes;
      Shape(reg, code, rows, bytes);
      memset(s.tile[reg], 0, sizeof s.tile[reg]);
    } else if (opcode == 0x49 && prefix == kNone && code[4] == 0xc0) {
      memset(s.config, 0, sizeof s.config);
    } else if (mod != 3 && (opcode == 0x4b || (opcode == 0x49 && prefix == kNone && reg == 0))) {
      uint64_t stride = 0, address = Register(context, rm | (~code[1] & 0x20) >> 2);
      if (rm == 4) {
        const int sib = code[length++], base = (sib & 7) | (~code[1] & 0x20) >> 2, index = (sib >> 3 & 7) | (~code[1] & 0x40) >> 3;
        if ((base & 7) == 5 && mod == 0) Refuse("an address without base", code);
        address = Register(context, base);
        if (index != 4) stride = Register(context, index) << (sib >> 6);
      } else if (opcode == 0x4b || (rm == 5 && mod == 0)) {
        Refuse("an addressing mode that is not known", code);
      }
      if (mod == 1) address += static_cast<uint64_t>(static_cast<int64_t>(static_cast<int8_t>(code[length++])));
      if (mod == 2) {
        int32_t displacement;
        memcpy(&displacement, code + length, 4);
        address += static_cast<uint64_t>(static_cast<int64_t>(displacement));
        length += 4;
      }
      uint8_t* memory = reinterpret_cast<uint8_t*>(address);
      if (opcode == 0x49) {
        memcpy(s.config, memory + stride, 64);  // no index: stride is 0
        memset(s.tile, 0, sizeof s.tile);
      } else {
        int rows, bytes;
        Shape(reg, code, rows, bytes);
        for (int r = 0; r < rows; ++r) {
          uint8_t* row = memory + static_cast<int64_t>(stride) * r;
          if (prefix == kF3) memcpy(row, s.tile[reg][r], static_cast<size_t>(bytes));
          else if (prefix == kF2 || prefix == k66) memcpy(s.tile[reg][r], row, static_cast<size_t>(bytes));
          else Refuse("no tile instruction", code);
        }
      }
    } else {
      Refuse("no tile instruction that is known", code);
    }
    context.uc_mcontext.gregs[REG_RIP] += length;
  }

  struct sigaction before_ = {};
};

}  // namespace slm::kernels::check
