// Layout and cursor of the KV cache. Expected sizes are worked out by hand from published model shapes.
#include "kv/kv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace slm::kv {
namespace {

static_assert(FirstVisible(0, 0) == 0);
static_assert(FirstVisible(511, 512) == 0);
static_assert(FirstVisible(512, 512) == 1);
static_assert(FirstVisible(1000, 1) == 1000);

std::vector<LayerShape> Same(int n, LayerShape s) { return std::vector<LayerShape>(static_cast<size_t>(n), s); }

TEST(KvLayout, SmolLM2At2048TokensTakes45MiB) {
  // 30 layers, 3 KV heads of 64: 2 * 30 * 3 * 64 * 2 B = 23040 B a token; times 2048 = 47,185,920 B.
  const auto r = Layout::Plan(Same(30, {3, 64, 0}), 2048, DType::kF16);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r.value().bytes_per_token(), 23040u);
  EXPECT_EQ(r.value().total_bytes(), 47185920u);
  // 8 blocks of 256 slots, 5,898,240 B each, in which a head has 32 KiB of keys and as much of values.
  EXPECT_EQ(r.value().layer(0).head_stride, 256u * 64u);
  EXPECT_EQ(r.value().layer(1).k_offset, 2u * 3u * 32768u);
  EXPECT_EQ(r.value().layer(1).k_gap, 5898240u - 32768u);
  EXPECT_EQ(r.value().layer(1).v_gap, 5898240u - 32768u);
  EXPECT_EQ(Layout::Plan(Same(30, {3, 64, 0}), 2049, DType::kF16).value().total_bytes(), 9u * 5898240u);  // another block begins
  const auto f32 = Layout::Plan(Same(30, {3, 64, 0}), 2048, DType::kF32);
  ASSERT_TRUE(f32.ok());
  EXPECT_EQ(f32.value().total_bytes(), 2 * 47185920u);
}

TEST(KvLayout, Int8TakesLittleMoreThanHalf) {
  // A tile of 16 slots of 64 values: keys 2 groups * 16 f16 scales = 64 B, values 16 f32 scales = 64 B, 16 * 64 codes each:
  // 1088 B. 2048 slots are 128 tiles; 30 layers * 3 heads * 2 * 128 * 1088 B = 25,067,520 B, 53 % of f16.
  const auto r = Layout::Plan(Same(30, {3, 64, 0}), 2048, DType::kI8);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r.value().total_bytes(), 25067520u);
  EXPECT_EQ(r.value().bytes_per_token(), 12240u);
  EXPECT_EQ(r.value().layer(0).head_stride, 256u * 64u);
  EXPECT_EQ(r.value().layer(0).v_offset, 3u * 16u * 1088u);
  EXPECT_EQ(r.value().layer(0).k_gap, 25067520u / 8 - 16u * 1088u);
  // 33 slots begin a third tile. Gemma's head of 256: keys 8 * 32 + 4096 = 4352 B, values 64 + 4096 = 4160 B.
  EXPECT_EQ(Layout::Plan({{3, 64, 0}}, 33, DType::kI8).value().layer(0).head_stride, 48u * 64u);
  EXPECT_EQ(Layout::Plan({{1, 256, 512}}, 16, DType::kI8).value().total_bytes(), 4352u + 4160u);
  // 80 values: 3 groups * 32 B + 1280 = 1376 B, to 1408; values 64 + 1280 = 1344 B, a multiple of 64 as it is.
  EXPECT_EQ(TileOf(DType::kI8, 80).key_bytes, 1408u);
  EXPECT_EQ(TileOf(DType::kI8, 80).value_bytes, 1344u);
}

TEST(KvLayout, BlocksAreAlignedDisjointAndInside) {
  const std::vector<LayerShape> shapes = {{1, 8, 0}, {3, 80, 7}, {1, 256, 512}, {5, 96, 0}};
  for (const int64_t capacity : {1, 3, 17, 256, 257, 1000}) {
    for (const DType type : {DType::kF16, DType::kF32, DType::kI8}) {
      const auto r = Layout::Plan(shapes, capacity, type);
      ASSERT_TRUE(r.ok());
      std::vector<std::pair<uint64_t, uint64_t>> blocks;
      for (int i = 0; i < r.value().n_layers(); ++i) {
        const LayerPlace& p = r.value().layer(i);
        const Tile tile = TileOf(type, p.shape.head_dim);
        const uint64_t tiles = p.head_stride / static_cast<uint64_t>(p.shape.head_dim) / static_cast<uint64_t>(tile.slots);
        const uint64_t slots = tiles * static_cast<uint64_t>(tile.slots), heads = static_cast<uint64_t>(p.shape.n_kv_heads);
        EXPECT_GE(slots, static_cast<uint64_t>(std::min<int64_t>(capacity, kBlockSlots)));
        uint64_t k = p.k_offset, v = p.v_offset;
        for (uint64_t first = 0; first < static_cast<uint64_t>(capacity); first += slots) {
          EXPECT_EQ(k % 64 + v % 64, 0u);
          blocks.push_back({k, k + heads * tiles * tile.key_bytes});
          blocks.push_back({v, v + heads * tiles * tile.value_bytes});
          k += tiles * tile.key_bytes + p.k_gap;
          v += tiles * tile.value_bytes + p.v_gap;
        }
      }
      std::sort(blocks.begin(), blocks.end());
      for (size_t i = 1; i < blocks.size(); ++i) EXPECT_GE(blocks[i].first, blocks[i - 1].second);
      EXPECT_LE(blocks.back().second, r.value().total_bytes());
      EXPECT_LT(r.value().total_bytes(), blocks.back().second + 64);
    }
  }
}

TEST(KvLayout, BytesReadGrowWithTokensInUseAndStopAtTheWindow) {
  const auto r = Layout::Plan({{2, 64, 0}, {2, 64, 16}}, 1 << 20, DType::kF16);
  ASSERT_TRUE(r.ok());
  const uint64_t slot = 2 * 2 * 64 * 2;  // K and V, 2 heads of 64 halfs
  EXPECT_EQ(r.value().BytesRead(0), 2 * slot);
  EXPECT_EQ(r.value().BytesRead(15), 32 * slot);
  EXPECT_EQ(r.value().BytesRead(99), 100 * slot + 16 * slot);
}

TEST(KvLayout, BytesReadDoNotDependOnTheCapacity) {
  for (const DType type : {DType::kF16, DType::kF32, DType::kI8}) {
    const auto small = Layout::Plan({{2, 64, 0}, {2, 64, 16}}, 512, type), large = Layout::Plan({{2, 64, 0}, {2, 64, 16}}, 1 << 20, type);
    for (const int64_t position : {0, 15, 16, 100, 511}) EXPECT_EQ(small.value().BytesRead(position), large.value().BytesRead(position));
  }
  // Position 99 of an int8 cache: tiles 0 ... 6 of the first layer; slots 84 ... 99 of the second lie in two tiles.
  EXPECT_EQ(Layout::Plan({{2, 64, 0}, {2, 64, 16}}, 512, DType::kI8).value().BytesRead(99), (7u + 2u) * 2u * 2u * 1088u);
}

TEST(KvLayout, AbsurdSizesAreErrors) {
  EXPECT_EQ(Layout::Plan({}, 16, DType::kF16).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(Layout::Plan({{1, 64, 0}}, 0, DType::kF16).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(Layout::Plan({{1, 64, 0}}, -5, DType::kF16).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(Layout::Plan({{1, 64, 0}}, std::numeric_limits<int64_t>::max(), DType::kF16).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(Layout::Plan({{0, 64, 0}}, 16, DType::kF16).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(Layout::Plan({{1, -64, 0}}, 16, DType::kF16).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(Layout::Plan({{1, 64, -1}}, 16, DType::kF16).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(Layout::Plan({{1, 64, 0}}, 16, DType::kQ4_0).error().code(), Code::kInvalidArgument);
  const int big = std::numeric_limits<int>::max();
  EXPECT_EQ(Layout::Plan({{big, big, 0}}, 1 << 30, DType::kF32).error().code(), Code::kLimit);
  EXPECT_EQ(Layout::Plan({{big, big, 0}}, 1 << 30, DType::kI8).error().code(), Code::kLimit);
  EXPECT_EQ(Layout::Plan(Same(1000, {1024, 1024, 0}), 1 << 24, DType::kF32).error().code(), Code::kLimit);
}

TEST(KvLayout, ErrorNamesTheLayer) {
  const auto r = Layout::Plan({{1, 64, 0}, {1, 0, 0}}, 16, DType::kF16);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message().find("layer 1"), std::string::npos) << r.error().message();
  EXPECT_FALSE(r.error().hint().empty());
}

TEST(KvCursor, AdvanceRewindAndRoom) {
  Cursor c(10);
  EXPECT_EQ(c.Advance(4).Take(), 0);
  EXPECT_EQ(c.Advance(0).Take(), 4);
  EXPECT_EQ(c.Advance(6).Take(), 4);
  EXPECT_EQ(c.room(), 0);
  EXPECT_TRUE(c.Rewind(3).ok());
  EXPECT_EQ(c.used(), 3);
  EXPECT_EQ(c.room(), 7);
  EXPECT_EQ(c.Advance(7).Take(), 3);
  EXPECT_TRUE(c.Rewind(0).ok());
  EXPECT_EQ(c.room(), 10);
}

TEST(KvCursor, FullCacheErrorSaysBothNumbersAndChangesNothing) {
  Cursor c(100);
  ASSERT_TRUE(c.Advance(90).ok());
  const auto r = c.Advance(11);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code(), Code::kLimit);
  for (const char* number : {"11", "90", "100"}) EXPECT_NE(r.error().message().find(number), std::string::npos) << number;
  EXPECT_EQ(c.used(), 90);
  EXPECT_TRUE(c.Advance(10).ok());
}

TEST(KvCursor, RewindForwardOrBelowZeroIsRefused) {
  Cursor c(8);
  ASSERT_TRUE(c.Advance(5).ok());
  EXPECT_EQ(c.Rewind(6).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(c.Rewind(-1).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(c.used(), 5);
  EXPECT_TRUE(c.Rewind(5).ok());
  EXPECT_EQ(c.Advance(-1).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(c.Advance(std::numeric_limits<int64_t>::max()).error().code(), Code::kLimit);
}

TEST(Cursor, TakesWhatOthersWrote) {
  Cursor c(8);
  ASSERT_TRUE(c.Advance(3).ok());
  EXPECT_TRUE(c.Take(7).ok());
  EXPECT_EQ(c.used(), 7);
  EXPECT_TRUE(c.Take(2).ok());
  EXPECT_EQ(c.used(), 2);
  EXPECT_EQ(c.Take(9).error().code(), Code::kLimit);
  EXPECT_EQ(c.Take(-1).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(c.used(), 2) << "a failed step changes nothing";
}

}  // namespace
}  // namespace slm::kv
