// SplitMix64 beside the numbers that Rosetta Code lists for it ("Pseudo-random numbers/Splitmix64").
#include "base/splitmix64.h"

#include <gtest/gtest.h>

namespace slm {
namespace {

TEST(SplitMix64, PublishedNumbers) {
  SplitMix64 random(1234567);
  for (const uint64_t want :
       {6457827717110365317u, 3203168211198807973u, 9817491932198370423u, 4593380528125082431u, 16408922859458223821u})
    EXPECT_EQ(random.Next(), want);
}

}  // namespace
}  // namespace slm
