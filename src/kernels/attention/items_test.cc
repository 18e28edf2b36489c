// How attention's work is cut (kernels/attention/contract.h): pure arithmetic, the same for every tier.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/attention/contract.h"

namespace slm::kernels {
namespace {

TEST(AttentionItems, CoverEachKeyAndTokenOnce) {
  for (const int position : {0, 255, 256, 1000}) {
    for (const int window : {0, 1, 256, 300, 4096}) {
      AttentionArgs a;
      a.n_heads = 6;
      a.n_kv_heads = 3;
      a.m = 1;
      a.position = position;
      a.window = window;
      std::vector<int> seen(3 * (position + 1), 0);
      for (int64_t i = 0; i < DecodeItems(a); ++i) {
        const DecodeItem it = DecodeItemAt(a, i);
        EXPECT_LT(it.key, it.key_end);
        EXPECT_EQ(it.key / kDecodeChunk, (it.key_end - 1) / kDecodeChunk);
        for (int j = it.key; j < it.key_end; ++j) ++seen[it.kv_head * (position + 1) + j];
      }
      for (int h = 0; h < 3; ++h)
        for (int j = 0; j <= position; ++j)
          ASSERT_EQ(seen[h * (position + 1) + j], window == 0 || j > position - window ? 1 : 0) << position << " " << window;
    }
  }
  AttentionArgs a;
  a.n_heads = 5;
  a.m = 37;
  std::vector<int> seen(5 * 37, 0);
  for (int64_t i = 0; i < PrefillItems(a); ++i)
    for (int t = PrefillItemAt(a, i).token; t < PrefillItemAt(a, i).token_end; ++t) ++seen[PrefillItemAt(a, i).head * 37 + t];
  for (const int n : seen) EXPECT_EQ(n, 1);
}

// Every item is somebody's, in order, and no thread has more keys than its part and half a chunk at each end.
TEST(AttentionItems, DecodeSharesCoverAllItemsAndHoldEqualKeys) {
  for (const int position : {0, 5, 127, 128, 200, 1087, 5000}) {
    for (const int window : {0, 1, 100, 512}) {
      for (const int n_threads : {1, 2, 3, 8}) {
        AttentionArgs a;
        a.n_heads = 9;
        a.n_kv_heads = 3;
        a.m = 1;
        a.position = position;
        a.window = window;
        int64_t next = 0;
        for (int t = 0; t < n_threads; ++t) {
          const DecodeShare share = DecodeShareOf(a, t, n_threads);
          ASSERT_EQ(share.begin, next) << position << " " << window;
          ASSERT_LE(share.begin, share.end);
          next = share.end;
          int64_t keys = 0;
          for (int64_t i = share.begin; i < share.end; ++i) keys += DecodeItemAt(a, i).key_end - DecodeItemAt(a, i).key;
          const int seen = position + 1 - FirstKey(a);
          EXPECT_LE(keys, 3 * seen / n_threads + 1 + kDecodeChunk);
          EXPECT_GE(keys, 3 * seen / n_threads - kDecodeChunk);
        }
        ASSERT_EQ(next, DecodeItems(a));
      }
    }
  }
  AttentionArgs a;  // 1088 keys, 3 KV heads, 2 threads: equal numbers of items would give one of them 9 % more than its half
  a.n_heads = a.n_kv_heads = 3;
  a.m = 1;
  a.position = 1087;
  int64_t keys = 0;
  for (int64_t i = DecodeShareOf(a, 0, 2).begin; i < DecodeShareOf(a, 0, 2).end; ++i)
    keys += DecodeItemAt(a, i).key_end - DecodeItemAt(a, i).key;
  EXPECT_EQ(keys, 1088 + 512);  // of 3264
}

}  // namespace
}  // namespace slm::kernels
