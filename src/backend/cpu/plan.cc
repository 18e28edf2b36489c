#include "backend/cpu/plan.h"

namespace slm::backend {
namespace {

bool Touch(const Resource& a, const Resource& b) {
  if (a.kind != b.kind) return false;
  if (a.kind == Resource::Kind::kArena || a.kind == Resource::Kind::kKv) return a.begin < b.end && b.begin < a.end;
  return true;
}
bool Touch(const std::vector<Resource>& a, const std::vector<Resource>& b) {
  for (const auto& x : a)
    for (const auto& y : b)
      if (Touch(x, y)) return true;
  return false;
}
void Append(std::vector<Resource>& to, const std::vector<Resource>& from) { to.insert(to.end(), from.begin(), from.end()); }

}  // namespace

void PlaceBarriers(std::vector<Step>& steps) {
  for (int mode = 0; mode < static_cast<int>(Mode::kCount); ++mode) {
    Access since;  // the last barrier
    for (Step& s : steps) {
      const bool one = mode == static_cast<int>(Mode::kDecode) || (mode == static_cast<int>(Mode::kPrefillLast) && s.rows == RowSet::kTail);
      const Access& a = one ? s.one_row : s.many_rows;
      s.barrier[mode] = Touch(a.reads, since.writes) || Touch(a.writes, since.writes) || Touch(a.writes, since.reads);
      if (s.barrier[mode]) since = {};
      Append(since.reads, a.reads);
      Append(since.writes, a.writes);
    }
  }
}

}  // namespace slm::backend
