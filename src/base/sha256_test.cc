// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <filesystem>
#include <fstream>

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

TEST(Sha256Test, PiecesAndFilesHaveTheDigestOfTheWhole) {
  const std::string whole(3'000'001, 'x');
  Sha256Stream stream;
  for (size_t at = 0; at < whole.size(); at += 777'777) stream.Update(whole.substr(at, 777'777));
  EXPECT_EQ(stream.bytes(), whole.size());
  EXPECT_EQ(stream.Hex(), Sha256Hex(whole));

  const auto path = std::filesystem::path(::testing::TempDir()) / "sha256_test";
  std::ofstream(path) << whole;
  EXPECT_EQ(*DigestOfFile(path), (FileDigest{Sha256Hex(whole), whole.size()}));
  std::filesystem::remove(path);
  EXPECT_EQ(DigestOfFile(path).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace oxbow
