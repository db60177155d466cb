// SPDX-License-Identifier: Apache-2.0
// A model is known by every byte, and no byte is read twice without need.
#include "io/model_digest.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/time/time.h"
#include "base/file.h"
#include "base/sha256.h"
#include "io/safetensors.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLarge = 20 << 20;

class ModelDigestTest : public ::testing::Test {
 protected:
  ModelDigestTest() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
  }
  ~ModelDigestTest() override { unsetenv("XDG_CACHE_HOME"); }

  void Write(const std::map<std::string, std::string>& tensors) const {
    Safetensors content;
    for (const auto& [name, bytes] : tensors) {
      content.tensors[name] = {DType::kU8, {static_cast<int64_t>(bytes.size())}, bytes};
    }
    ASSERT_TRUE(WriteSafetensors(file_, content).ok());
  }
  std::map<std::string, std::string> Digests() const {
    return TensorDigests(WeightFiles::OpenFile(file_).value(), /*settled=*/absl::ZeroDuration());
  }
  size_t Records() const {
    std::error_code none;
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder_ / "cache/oxbow/digests", none)) {
      count += entry.is_regular_file();
    }
    return count;
  }

  const fs::path folder_ = fs::path(::testing::TempDir()) / "model_digest_test" /
                           ::testing::UnitTest::GetInstance()->current_test_info()->name();
  const fs::path file_ = folder_ / "model.safetensors";
};

// The change lies between the pieces that samples of a tensor would take, and the file keeps size
// and time.
// Promise: Encoded prompts are of their encoders. A changed byte anywhere in a text encoder is
// another directory of the cache, also where size and time of its file are put back.
TEST_F(ModelDigestTest, AChangedByteInTheMiddleOfALargeTensorIsSeenAlthoughTheTimeIsPutBack) {
  Write({{"a", std::string(kLarge, 'x')}, {"b", "small"}});
  const auto before = Digests();
  EXPECT_EQ(before.at("b"), Sha256Hex("small"));
  ASSERT_EQ(Records(), 1u);
  struct stat facts {};
  ASSERT_EQ(stat(file_.c_str(), &facts), 0);
  const int descriptor = open(file_.c_str(), O_WRONLY);
  ASSERT_EQ(pwrite(descriptor, "y", 1, kLarge / 2), 1);
  const timespec times[] = {facts.st_atim, facts.st_mtim};
  ASSERT_EQ(futimens(descriptor, times), 0);
  close(descriptor);
  const auto after = Digests();
  EXPECT_NE(after.at("a"), before.at("a"));
  EXPECT_EQ(after.at("b"), before.at("b"));
}

TEST_F(ModelDigestTest, WhatIsRememberedIsTakenAndDamageIsNot) {
  Write({{"a", std::string(kLarge, 'x')}});
  const auto digests = Digests();
  const fs::path record = fs::directory_iterator(folder_ / "cache/oxbow/digests")->path();
  std::string text = *ReadFile(record);
  // A digest that no file has shows that the record is read.
  const size_t at = text.rfind(digests.at("a"));
  ASSERT_NE(at, text.npos);
  ASSERT_TRUE(WriteFileAtomically(record, text.replace(at, 64, std::string(64, '0'))).ok());
  EXPECT_EQ(Digests().at("a"), std::string(64, '0'));
  ASSERT_TRUE(WriteFileAtomically(record, text.substr(0, text.size() - 3)).ok());
  EXPECT_EQ(Digests(), digests);
  ASSERT_TRUE(WriteFileAtomically(record, "").ok());
  EXPECT_EQ(Digests(), digests);
}

TEST_F(ModelDigestTest, ASmallFileIsNotRemembered) {
  Write({{"a", "x"}});
  EXPECT_EQ(Digests().at("a"), Sha256Hex("x"));
  EXPECT_EQ(Records(), 0u);
}

TEST_F(ModelDigestTest, NotesOfTheProgramThatSavedAConfigDoNotCount) {
  EXPECT_EQ(ConfigWithoutNotes(R"({"a": 1, "_diffusers_version": "0.35", "dtype": "bf16"})"),
            ConfigWithoutNotes(R"({"torch_dtype": "f32", "a": 1})"));
}

}  // namespace
}  // namespace oxbow::io
