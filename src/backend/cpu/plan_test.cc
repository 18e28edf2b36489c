// Barriers follow from accesses: where they must stand, and where they must not.
#include "backend/cpu/plan.h"

#include <gtest/gtest.h>

namespace slm::backend {
namespace {

using Kind = Resource::Kind;
constexpr int kDecode = static_cast<int>(Mode::kDecode), kLast = static_cast<int>(Mode::kPrefillLast),
              kAll = static_cast<int>(Mode::kPrefillAll);

Step Make(std::vector<Resource> reads, std::vector<Resource> writes, RowSet rows = RowSet::kAll) {
  Step s;
  s.one_row = s.many_rows = {std::move(reads), std::move(writes)};
  s.rows = rows;
  return s;
}

TEST(PlaceBarriers, ReadAfterWrite) {
  std::vector<Step> p{Make({}, {{Kind::kArena, 0, 64}}), Make({{Kind::kArena, 32, 96}}, {})};
  PlaceBarriers(p);
  EXPECT_FALSE(p[0].barrier[kDecode]);
  EXPECT_TRUE(p[1].barrier[kDecode]);
}
TEST(PlaceBarriers, WriteAfterReadAndAfterWrite) {
  std::vector<Step> p{Make({{Kind::kArena, 0, 64}}, {}), Make({}, {{Kind::kArena, 0, 64}}), Make({}, {{Kind::kArena, 63, 65}})};
  PlaceBarriers(p);
  EXPECT_TRUE(p[1].barrier[kDecode]);
  EXPECT_TRUE(p[2].barrier[kDecode]);
}
TEST(PlaceBarriers, DisjointBytesAndSharedReadsNeedNone) {
  std::vector<Step> p{Make({{Kind::kArena, 0, 64}}, {{Kind::kArena, 64, 128}}), Make({{Kind::kArena, 0, 64}}, {{Kind::kArena, 128, 192}}),
                      Make({}, {{Kind::kLogits}})};
  PlaceBarriers(p);
  for (const Step& s : p) EXPECT_FALSE(s.barrier[kDecode]);
}
TEST(PlaceBarriers, AnEarlierConflictIsNotForgotten) {
  std::vector<Step> p{Make({}, {{Kind::kArena, 0, 64}}), Make({}, {{Kind::kArena, 64, 128}}), Make({{Kind::kArena, 0, 64}}, {})};
  PlaceBarriers(p);
  EXPECT_FALSE(p[1].barrier[kDecode]);
  EXPECT_TRUE(p[2].barrier[kDecode]);
}
TEST(PlaceBarriers, LayersOfTheCacheAreDifferentThings) {
  std::vector<Step> p{Make({}, {{Kind::kKv, 0, 1}}), Make({{Kind::kKv, 1, 2}}, {}), Make({{Kind::kKv, 0, 1}}, {})};
  PlaceBarriers(p);
  EXPECT_FALSE(p[1].barrier[kDecode]);
  EXPECT_TRUE(p[2].barrier[kDecode]);
}
// Private activation rows: shared only when a step works on several rows.
TEST(PlaceBarriers, OneRowQuantizesPrivately) {
  auto quantize = Make({}, {}), product = Make({}, {});
  quantize.many_rows.writes = {{Kind::kActivations}};
  product.many_rows.reads = {{Kind::kActivations}};
  std::vector<Step> p{quantize, product};
  PlaceBarriers(p);
  EXPECT_FALSE(p[1].barrier[kDecode]);
  EXPECT_TRUE(p[1].barrier[kLast]);
  EXPECT_TRUE(p[1].barrier[kAll]);
  p = {quantize, product};
  p[0].rows = p[1].rows = RowSet::kTail;
  PlaceBarriers(p);
  EXPECT_FALSE(p[1].barrier[kLast]) << "the tail of a prefill is one row";
  EXPECT_TRUE(p[1].barrier[kAll]);
}

}  // namespace
}  // namespace slm::backend
