// The rewrites: declared from the list, which the driver walks in its order.
#pragma once
#include <span>

#include "legalize/piece.h"

namespace slm::legalize {

#define SLM_REWRITE(name, domain, op, use, function, summary) std::optional<Piece> function(const Site&);
#include "legalize/rewrites.inc"
#undef SLM_REWRITE

enum class Use : uint8_t {
  kRefused,  // for nodes that the target refuses
  kInPieces  // for nodes of a form in pieces that the target does not make one kernel of
};

struct RewriteEntry {
  const char* name;
  const char* domain;
  const char* op;
  Use use;
  Rewrite function;
  const char* summary;
};
std::span<const RewriteEntry> AllRewrites();  // in the list's order

}  // namespace slm::legalize
