#include "base/sha256.h"

#include "gtest/gtest.h"

namespace oxbow {
namespace {

// FIPS 180-2, appendix B.
TEST(Sha256Test, MatchesTheStandardsExamples) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256Test, FingerprintIsTheLeadingEightBytes) {
  EXPECT_EQ(Fingerprint64("abc"), 0xba7816bf8f01cfeau);
}

}  // namespace
}  // namespace oxbow
